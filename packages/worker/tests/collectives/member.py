"""A member of a generation in a process of its own: ``member.py FOLDER RANK SIZE STEPS [DIE]``.

In step k the member of rank r adds k * (r + 1) with weight r + 1 for the mean, and k for the sum.
It checks what it gets, and prints the number of the last step that it has the sum of. With DIE it
kills itself in that step: ``begin`` before it adds anything, ``middle`` between the two signals.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from unittest import mock

import numpy as np

from edl_worker.collectives.peers import GenerationEnded
from edl_worker.collectives.shared_memory import SharedMemoryGroup
from edl_worker.core.replicas import Part

COUNT = 100_003


def main(folder: str, rank: int, size: int, steps: int, die: str = "") -> None:
    """Take part, and say how far it has come."""
    parts = [Part("float32", COUNT), Part("float64", 3, is_mean=False)]
    group = SharedMemoryGroup(Path(folder), rank, size, parts, lambda: False)
    if die == "middle":
        send, sent = group._peers.send, 0

        def die_at_second() -> None:
            nonlocal sent
            sent += 1
            if sent == 2 * steps:
                os.kill(os.getpid(), signal.SIGKILL)
            send()

        mock.patch.object(group._peers, "send", die_at_second).start()
    values = np.full(2_500_000, 7 if rank == 0 else 0, np.uint8)
    done = 0
    try:
        if not die:
            group.broadcast(0, memoryview(values))
            assert (values == 7).all(), "the values did not arrive"
        for step in range(1, steps + 1):
            if die == "begin" and step == steps:
                os.kill(os.getpid(), signal.SIGKILL)
            added = [np.full(COUNT, step * (rank + 1), "float32"), np.full(3, step, "float64")]
            total, notes = group.all_reduce(added, rank + 1, f"{rank}:{step}".encode())
            weighted = np.float32(step * sum((r + 1) ** 2 for r in range(size)))
            expected = weighted / np.float32(sum(range(1, size + 1)))
            assert (total[0] == expected).all(), f"{total[0][:3]} for {expected}"
            assert (total[1] == step * size).all(), total[1]
            assert notes == [f"{r}:{step}".encode() for r in range(size)], notes
            done = step
    except GenerationEnded as error:
        print(done, error, flush=True)
    else:
        print(done, flush=True)
    finally:
        group.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
