"""A member of a ring: ``ring_member PLACE RANK HOSTS MEGABYTES STEPS COMPUTE_S``.

Prints the mean duration of a step as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder
from edl_worker.collectives.ring_members import Ring
from edl_worker.core.replicas import Generation, Part

PORT = 7071


def main(
    place: str, rank: int, hosts: list[str], megabytes: int, steps: int, compute: float
) -> None:
    """Take part in so many steps, after two to warm up."""
    identities = IdentityFolder(Path(place) / "identity", "bench")
    credentials = Credentials(identities.file(Role.WORKER, rank))
    ring = Ring(rank, hosts[rank], PORT, credentials, reach_s=60)
    addresses = tuple(f"{host}:{PORT}" for host in hosts)
    generation = Generation(
        1, tuple(range(len(hosts))), 0, addresses=addresses, incarnation="bench"
    )
    count = megabytes * 250_000
    group = ring.meet(generation, [Part("float32", count)], lambda: False)
    values = [np.full(count, rank, "float32")]
    for step in range(steps + 2):
        if step == 2:
            started = time.perf_counter()
        time.sleep(compute)
        total, _ = group.all_reduce(values, 1, b"")
        assert total[0][-1] == (len(hosts) - 1) / 2
    print(json.dumps({"step_s": (time.perf_counter() - started) / steps}))
    group.close()


if __name__ == "__main__":
    main(
        *(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")),
        *(int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])),
    )
