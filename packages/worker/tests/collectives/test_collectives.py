"""What members of a generation exchange, on every way: real processes, some of which die."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import forking_program

from collectives.member import make_collectives
from edl_testing.fake_master import WAIT_S
from edl_worker.collectives.ring_members import Ring
from edl_worker.core.collectives import CollectiveGroup, Collectives, GenerationEnded
from edl_worker.core.replicas import Generation, Part

MEMBER = "collectives.member"
IMPORTS = [f"edl_worker.collectives.{name}" for name in ("ring_members", "shared_memory")]
SMALL = [Part("float32", 8)]

pytestmark = pytest.mark.parametrize("transport", ["memory", "ring"])


Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def member() -> Iterator[str]:
    """An interpreter that runs members."""
    with forking_program(MEMBER, *IMPORTS) as python:
        yield python


@pytest.fixture
def run(transport: str, tmp_path: Path, member: str) -> Run:
    def run(size: int, steps: int, dies: dict[int, str] | None = None) -> list[str]:
        """Return what each member says in the end; nothing if it was killed."""
        members = [
            subprocess.Popen(
                [member, "-m", MEMBER, transport, tmp_path]
                + [str(number) for number in (rank, size, steps)]
                + ([dies[rank]] if dies and rank in dies else []),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        return [member.communicate(timeout=WAIT_S)[0].strip() for member in members]

    return run


@pytest.mark.parametrize("size", [2, 5])
def test_all_members_get_the_sum_and_the_notes(run: Run, size: int) -> None:
    assert run(size, 20) == ["20"] * size


@pytest.mark.parametrize("when", ["begin", "middle"])
def test_no_member_has_a_sum_that_a_dead_one_did_not_complete(run: Run, when: str) -> None:
    first, dead, last = run(3, 5, {1: when})

    assert not dead
    for said in (first, last):
        # One that dies before the fifth step may still owe the others a part of the fourth sum.
        assert said.split()[0] in ("3", "4")
        assert "gone" in said


def meet(
    transport: str,
    folder: Path,
    size: int = 2,
    parts: list[Part] = SMALL,
    is_over: Callable[[], bool] = lambda: False,
) -> list[CollectiveGroup]:
    """Return the members of a generation, by rank."""
    collectives = [make_collectives(transport, folder, rank) for rank in range(size)]
    addresses = tuple(each.address for each in collectives)
    generation = Generation(
        1, tuple(range(size)), 0, sources=(0, 1), addresses=addresses, incarnation="one"
    )
    groups = call_all([lambda c=each: c.meet(generation, parts, is_over) for each in collectives])
    close(collectives)
    return groups


def close(collectives: list[Collectives]) -> None:
    for each in collectives:
        if isinstance(each, Ring):
            each.close()


def call_all(calls: list[Callable[[], Any]]) -> list[Any]:
    """Return what each call returns; they are made at the same time."""
    results: dict[int, Any] = {}

    def call(number: int) -> None:
        results[number] = calls[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(calls))]


def test_a_wait_ends_with_the_generation(transport: str, tmp_path: Path) -> None:
    over = threading.Event()
    groups = meet(transport, tmp_path, is_over=over.is_set)
    threading.Timer(0.2, over.set).start()

    with pytest.raises(GenerationEnded, match="the master has ended the generation"):
        groups[0].all_reduce([np.ones(8, "float32")], 1, b"")
    for group in groups:
        group.close()


def test_a_member_that_does_not_come_is_not_waited_for_without_end(
    transport: str, tmp_path: Path
) -> None:
    over = threading.Event()
    threading.Timer(0.2, over.set).start()
    one, other = (make_collectives(transport, tmp_path, rank) for rank in range(2))
    addresses = one.address, other.address
    generation = Generation(1, (0, 1), 0, addresses=addresses, incarnation="one")

    with pytest.raises(GenerationEnded, match="the master has ended the generation"):
        one.meet(generation, SMALL, over.is_set)
    close([one, other])


def test_weight_zero_adds_nothing_whatever_the_values_are(transport: str, tmp_path: Path) -> None:
    bad, ones = np.array([np.nan, np.inf] * 4, "float32"), np.ones(8, "float32")
    first, second = meet(transport, tmp_path)

    totals = call_all(
        [lambda: first.all_reduce([bad], 0, b""), lambda: second.all_reduce([ones], 3, b"x")]
    )
    nothing = call_all(
        [lambda: first.all_reduce([bad], 0, b""), lambda: second.all_reduce([bad], 0, b"")]
    )

    assert [total[0].tolist() for total, _ in totals + nothing][2:] == [[0] * 8] * 2
    assert [notes for _, notes in totals] == [[b"", b"x"]] * 2
    first.close()
    second.close()


def test_the_sum_stays_until_the_next_call(transport: str, tmp_path: Path) -> None:
    first, second = meet(transport, tmp_path)
    ones = np.ones(8, "float32")

    totals = call_all(
        [lambda: first.all_reduce([ones], 1, b""), lambda: second.all_reduce([3 * ones], 3, b"")]
    )

    assert [total[0].tolist() for total, _ in totals] == [[2.5] * 8] * 2, "the mean by weight"
    first.close()
    assert totals[1][0][0].tolist() == [2.5] * 8
    second.close()


def test_a_member_that_closes_at_once_takes_no_sum_from_the_others(
    transport: str, tmp_path: Path
) -> None:
    groups = meet(transport, tmp_path, 3, [Part("float32", 1_000_000)])
    values = np.ones(1_000_000, "float32")

    def reduce(group: CollectiveGroup) -> float:
        total, _ = group.all_reduce([values], 1, b"")
        group.close()
        return float(total[0].sum())

    assert call_all([lambda g=group: reduce(g) for group in groups]) == [1e6] * 3


def test_a_note_that_is_too_long_is_refused(transport: str, tmp_path: Path) -> None:
    groups = meet(transport, tmp_path)

    with pytest.raises(ValueError, match="note of 501 bytes"):
        groups[0].all_reduce([np.zeros(8, "float32")], 1, bytes(501))
    for group in groups:
        group.close()


def test_members_know_when_a_peer_waits_for_them(transport: str, tmp_path: Path) -> None:
    first, second = meet(transport, tmp_path)
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
    with pytest.raises(GenerationEnded, match="gone"):
        first.all_reduce([], 0, b"")
    first.close()
