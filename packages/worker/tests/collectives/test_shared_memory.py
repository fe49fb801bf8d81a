"""What only members that share memory have: the memory of an earlier generation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edl_worker.collectives.shared_memory import Memory, SharedMemory, SharedMemoryGroup
from edl_worker.core.replicas import Generation, Part

PARTS = [Part("float32", 8)]


def meet(folder: Path, kept: list[Memory | None]) -> list[SharedMemoryGroup]:
    """Return two members of a generation."""
    return meet_all(
        [partial(SharedMemoryGroup, folder, r, 2, PARTS, lambda: False, kept[r]) for r in range(2)]
    )


def meet_all(calls: list[Callable[[], Any]]) -> list[SharedMemoryGroup]:
    """Return what two members get that meet at the same time."""
    groups: dict[int, SharedMemoryGroup] = {}

    def join(rank: int) -> None:
        groups[rank] = calls[rank]()

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


def test_memory_that_was_released_is_not_used_again(tmp_path: Path) -> None:
    collectives = [SharedMemory(rank, tmp_path) for rank in range(2)]
    memory = []
    for number in (1, 2, 3):
        generation = Generation(number, (0, 1), 0, sources=(0, 1), incarnation="one")
        groups = meet_all(
            [partial(each.meet, generation, PARTS, lambda: False) for each in collectives]
        )
        memory.append(groups[0].memory)
        for group in groups:
            group.close()
        if number == 2:
            collectives[0].release()
    assert memory[1] is memory[0]
    assert memory[2] is not memory[0]
