"""All-reduce through shared memory: real processes, some of which die."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from edl_worker.collectives.peers import GenerationEnded
from edl_worker.collectives.shared_memory import Memory, SharedMemoryGroup
from edl_worker.core.replicas import Part

MEMBER = Path(__file__).with_name("member.py")


def run(folder: Path, size: int, steps: int, dies: dict[int, str] | None = None) -> list[str]:
    """Return what each member says in the end; nothing if it was killed."""
    members = [
        subprocess.Popen(
            [sys.executable, MEMBER, folder, str(rank), str(size), str(steps)]
            + ([dies[rank]] if dies and rank in dies else []),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    return [member.communicate(timeout=120)[0].strip() for member in members]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_members_get_the_sum_and_the_notes(tmp_path: Path, size: int) -> None:
    assert run(tmp_path, size, 50) == ["50"] * size


@pytest.mark.parametrize("when", ["begin", "middle"])
def test_no_member_has_a_sum_that_a_dead_one_did_not_complete(tmp_path: Path, when: str) -> None:
    said = run_without_broadcast(tmp_path, when)

    assert said == ["4 member 1 is gone", "", "4 member 1 is gone"]


def run_without_broadcast(folder: Path, when: str) -> list[str]:
    """Let the second of three members die in its fifth step."""
    return run(folder, 3, 5, {0: "never", 1: when, 2: "never"})


def test_a_wait_ends_with_the_generation(tmp_path: Path) -> None:
    over = threading.Event()
    groups: dict[int, SharedMemoryGroup] = {}

    def join(rank: int) -> None:
        parts = [Part("float32", 8)]
        groups[rank] = SharedMemoryGroup(tmp_path, rank, 2, parts, over.is_set)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    threading.Timer(0.2, over.set).start()

    with pytest.raises(GenerationEnded, match="the master has ended the generation"):
        groups[0].all_reduce([np.ones(8, "float32")], 1, b"")
    for group in groups.values():
        group.close()


def test_a_member_that_does_not_come_is_not_waited_for_without_end(tmp_path: Path) -> None:
    over = threading.Event()
    threading.Timer(0.2, over.set).start()

    with pytest.raises(GenerationEnded):
        SharedMemoryGroup(tmp_path, 0, 2, [Part("float32", 8)], over.is_set)


def test_weight_zero_adds_nothing_whatever_the_values_are(tmp_path: Path) -> None:
    group = SharedMemoryGroup(tmp_path, 0, 1, [Part("float32", 2)], lambda: False)

    total, _ = group.all_reduce([np.array([np.nan, np.inf], "float32")], 0, b"")

    assert total[0].tolist() == [0, 0]
    group.close()


def test_a_note_that_is_too_long_is_refused(tmp_path: Path) -> None:
    group = SharedMemoryGroup(tmp_path, 0, 1, [Part("float32", 2)], lambda: False)

    with pytest.raises(ValueError, match="note of 501 bytes"):
        group.all_reduce([np.zeros(2, "float32")], 1, bytes(501))
    group.close()


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


def test_members_know_when_a_peer_waits_for_them(tmp_path: Path) -> None:
    first, second = meet(tmp_path, [None, None])
    assert not first.is_awaited(0.0)
    added = threading.Thread(target=second.all_reduce, args=([np.ones(8, "float32")], 1, b""))
    added.start()
    assert first.is_awaited(60.0)
    total, _ = first.all_reduce([], 0, b"")
    added.join()
    assert total[0].tolist() == [1] * 8
    assert not first.is_awaited(0.0)
    second.close()
    assert first.is_awaited(60.0), "that it is gone is found by taking part"
    with pytest.raises(GenerationEnded, match="member 1 is gone"):
        first.all_reduce([], 0, b"")
    first.close()


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
