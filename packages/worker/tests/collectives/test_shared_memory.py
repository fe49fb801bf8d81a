"""What only members that share memory have: the memory of an earlier generation."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from edl_worker.collectives.shared_memory import Memory, SharedMemoryGroup
from edl_worker.core.replicas import Part


def meet(folder: Path, kept: list[Memory | None]) -> list[SharedMemoryGroup]:
    """Return two members of a generation."""
    groups: dict[int, SharedMemoryGroup] = {}

    def join(rank: int) -> None:
        parts = [Part("float32", 8)]
        groups[rank] = SharedMemoryGroup(folder, rank, 2, parts, lambda: False, kept[rank])

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [groups[0], groups[1]]


def test_the_same_members_use_their_memory_again(tmp_path: Path) -> None:
    first = meet(tmp_path / "1", [None, None])
    assert not list(tmp_path.iterdir()), "nothing is left where they met"
    memory = [group.memory for group in first]
    for group in first:
        group.close()
    again = meet(tmp_path / "2", [memory[0], memory[1]])
    assert [group.memory for group in again] == memory
    other = meet(tmp_path / "3", [None, memory[1]])
    assert other[1].memory is not memory[1], "of another member that does not have it"
    added = threading.Thread(target=other[1].all_reduce, args=([np.full(8, 3, "float32")], 1, b""))
    added.start()
    total = other[0].all_reduce([np.ones(8, "float32")], 1, b"")[0][0].tolist()
    added.join()
    assert total == [2] * 8, "the mean"
    for group in (*again, *other):
        group.close()
