"""Dense parameters over secured connections: against plain TLS, and against unsecured ones.

One variable of 64 MB, one worker and one server in processes of their own on this machine, and
their peers in turn with them. Pull and push as in ``transport``.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.measure import paired, started
from bench.transport import Plain, Worker, rate
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.folder import IdentityFolder
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2

NBYTES, RUNS, TIMES = 64_000_000, 5, 9
TLS_TARGET = 0.60


def measures() -> list[dict[str, Any]]:
    """GB/s of each transfer beside its peers."""
    found = []
    for what in ("pull", "push"):
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            identities = IdentityFolder(place / "identity", "bench")
            identities.create([(Role.MASTER, None), (Role.WORKER, 0)])
            identity = str(identities.file(Role.MASTER))
            server = Credentials(identities.file(Role.WORKER, 0)).to(Role.MASTER)

            plane = "bench.peers.plane_server", "1", str(NBYTES // 4), "SGD"
            secured = stack.enter_context(started(*plane, "", identity))
            unsecured = stack.enter_context(started(*plane))
            tls = stack.enter_context(started("bench.peers.plain_tcp", str(NBYTES), identity))
            ours = Worker(*secured.split(), NBYTES, job_pb2.FLOAT32, server)
            peers = {
                "plain TLS over loopback": (Plain(tls, NBYTES, server), TLS_TARGET),
                "unsecured": (Worker(*unsecured.split(), NBYTES), None),
            }
            for caller in (ours, *(peer for peer, _ in peers.values())):
                getattr(caller, what)()  # memory is touched, loops are compiled
                getattr(caller, what)()
            for name, (peer, target) in peers.items():
                found.append(
                    paired(
                        f"secured {what}, 64 MB dense",
                        "GB/s",
                        lambda ours=ours, w=what: rate(getattr(ours, w), NBYTES, TIMES),
                        name,
                        lambda peer=peer, w=what: rate(getattr(peer, w), NBYTES, TIMES),
                        runs=RUNS,
                        target=target,
                    ).to_json()
                )
    return found
