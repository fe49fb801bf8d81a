"""A member in a process of its own: ``member.py TRANSPORT FOLDER RANK SIZE STEPS [DIE]``.

In step k the member of rank r adds k * (r + 1) with weight r + 1 for the mean, and k for the sum.
It checks what it gets, and prints the number of the last step that it has the sum of. With DIE it
kills itself in that step: ``begin`` before it adds anything, ``middle`` when it has added its
numbers and the sum is not complete.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from edl_worker.collectives.ring import RingGroup
from edl_worker.collectives.ring_members import Ring
from edl_worker.collectives.shared_memory import SharedMemory, SharedMemoryGroup
from edl_worker.core.collectives import Collectives, GenerationEnded
from edl_worker.core.replicas import Generation, Part

COUNT = 100_003
PARTS = [Part("float32", COUNT), Part("float64", 3, is_mean=False)]


def make_collectives(transport: str, folder: Path, rank: int) -> Collectives:
    """Return the way in which this member meets the others."""
    return SharedMemory(rank, folder) if transport == "memory" else Ring(rank, "127.0.0.1")


def make_generation(folder: Path, rank: int, size: int, address: str) -> Generation:
    """Return the generation, once all members have told their addresses in a folder."""
    own = folder / f"{rank}.address"
    own.with_suffix(".new").write_text(address)
    own.with_suffix(".new").rename(own)
    files = [folder / f"{peer}.address" for peer in range(size)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    addresses = tuple(file.read_text() for file in files)
    return Generation(1, tuple(range(size)), 0, addresses=addresses, incarnation="one")


def die_in_the_middle(group: Any, at: int) -> None:
    """Have this process die in a call of ``all_reduce``, when it has added its numbers."""
    if isinstance(group, SharedMemoryGroup):
        send, sent = group._peers.send, 0

        def die_at_second() -> None:
            nonlocal sent
            sent += 1
            if sent == 2 * at:
                os.kill(os.getpid(), signal.SIGKILL)
            send()

        mock.patch.object(group._peers, "send", die_at_second).start()
        return
    assert isinstance(group, RingGroup)
    add, added = group._add_chunk, 0

    def die_after_first(*args: Any, **options: Any) -> None:
        nonlocal added
        added += 1
        add(*args, **options)
        if added == (group.size - 1) * (at - 1) + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    mock.patch.object(group, "_add_chunk", die_after_first).start()


def main(transport: str, place: str, rank: int, size: int, steps: int, die: str = "") -> None:
    """Take part, and say how far it has come."""
    folder = Path(place)
    collectives = make_collectives(transport, folder, rank)
    generation = make_generation(folder, rank, size, collectives.address)
    group = collectives.meet(generation, PARTS, lambda: False)
    values = np.full(2_500_000, 7 if rank == 0 else 0, np.uint8)
    done = 0
    try:
        group.broadcast(memoryview(values))
        assert (values == 7).all(), "the values did not arrive"
        if die == "middle":
            die_in_the_middle(group, steps)
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
    name, folder, *numbers = sys.argv[1:]
    main(name, folder, *map(int, numbers[:3]), *numbers[3:])
