"""Dense parameters as a secured job of processes moves them: unsecured, and plain TLS next to them.

One variable of 64 MB or 1 GB, one worker and one server in processes of their own on this machine,
and each peer in turn with them. Pull and push as in ``transport``.

- unsecured: the same plane over TCP, as if the job had no identities.
- plain TLS: bytes under mutual TLS over loopback, and nothing else.

``EDL_BENCH_LARGE=0`` leaves 1 GB out: it needs about 8 GB of memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.measure import compare, run_module
from bench.transport import Plain, Worker, rate, sizes
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder

TLS_TARGET = 0.60

Transfer = Callable[[], None]


class _Place:
    """Processes that hold so many bytes, and their callers."""

    def __init__(self, nbytes: int, stack: ExitStack) -> None:
        self._nbytes, self._stack = nbytes, stack
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        identities = IdentityFolder(place / "identity", "bench")
        identities.create([(Role.MASTER, None), (Role.WORKER, 0)])
        self._identity = str(identities.file(Role.MASTER))
        self._server = Credentials(identities.file(Role.WORKER, 0)).to(Role.MASTER)

    def connect_secured(self) -> Worker:
        address = self._plane("", self._identity)
        return Worker(*address.split(), self._nbytes, job_pb2.FLOAT32, self._server)

    def connect_unsecured(self) -> Worker:
        return Worker(*self._plane().split(), self._nbytes)

    def tls(self) -> Plain:
        arguments = "bench.peers.plain_tcp", str(self._nbytes), self._identity
        address = self._stack.enter_context(run_module(*arguments))
        return Plain(address, self._nbytes, self._server)

    def _plane(self, *arguments: str) -> str:
        plane = "bench.peers.plane_server", "1", str(self._nbytes // 4), "SGD", *arguments
        return self._stack.enter_context(run_module(*plane))


def measures() -> list[dict[str, Any]]:
    """GB/s of each transfer next to its peers."""
    found = []
    for size, (nbytes, runs, times) in sizes().items():
        for peer, make, target in (
            ("unsecured", _Place.connect_unsecured, None),
            ("plain TLS over loopback", _Place.tls, TLS_TARGET),
        ):
            with ExitStack() as stack:
                place = _Place(nbytes, stack)
                ours, theirs = place.connect_secured(), make(place)
                for what in ("pull", "push"):
                    transfers: list[Transfer] = [getattr(one, what) for one in (ours, theirs)]
                    for once in 2 * transfers:  # memory is touched, loops are compiled
                        once()
                    mine, its = (
                        lambda t=transfer, n=nbytes, k=times: rate(t, n, k)
                        for transfer in transfers
                    )
                    name = f"secured {what}, {size} dense"
                    measured = compare(name, "GB/s", mine, peer, its, runs=runs, target=target)
                    found.append(measured.to_json())
    return found
