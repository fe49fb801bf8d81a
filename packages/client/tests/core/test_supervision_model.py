"""The protocol of docs/adr/0016, explored: after every death, freeze and thaw the job comes back.

All states of the model that faults and requests can reach are visited breadth-first; from each of
them the processes that still run must bring the job back without a further fault, in whatever
order they act.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations

from supervision_model import (
    ACTS,
    CANCELLED,
    NEW,
    RUNNING,
    SUCCEEDED,
    World,
    looks,
    master_acts,
    successors,
    supervisor_acts,
)

from edl.core.supervision import Master

MOST_MASTERS = 2
"""At once: a third would be one of these again."""

MOST_CONTENDERS = 2


def reachable() -> set[World]:
    """All states of a job that a client has just submitted."""
    first = looks(World())
    seen, queue = {first}, deque([first])
    while queue:
        for world in successors(queue.popleft()):
            few = len(world.masters) <= MOST_MASTERS and len(world.contenders) <= MOST_CONTENDERS
            if few and world not in seen:
                seen.add(world)
                queue.append(world)
    return seen


Order = tuple[Callable[[World], World], ...]


@cache
def round_of(world: World, order: Order) -> World:
    """Let each process act once."""
    for act in order:
        world = act(world)
    return world


def calmly(world: World, order: Order) -> World:
    """Let the processes act in turn until nothing changes any more."""
    for _ in range(16):
        before = world
        world = round_of(world, order)
        if world == before:
            break
    return world


WORLDS = reachable()
WANTED = [world for world in WORLDS if world.wanted]


def test_the_exploration_reaches_what_it_is_about() -> None:
    assert len(WORLDS) > 20_000
    assert any(len(world.masters) == 2 for world in WORLDS)
    assert any(world.contenders == (False, True) for world in WORLDS)
    assert any(world.supervisor and world.contenders for world in WORLDS), "two supervisors"
    assert any(world.supervisor and world.supervisor.master is Master.ORPHAN for world in WORLDS)
    assert any(world.end and not world.cleared and not world.masters for world in WORLDS)
    assert {world.state for world in WORLDS} == {RUNNING, CANCELLED, SUCCEEDED}


def test_never_do_two_masters_hold_one_job() -> None:
    assert all(sum(master.holds for master in world.masters) <= 1 for world in WORLDS)


def test_while_any_process_runs_the_job_comes_back() -> None:
    """Frozen processes stay frozen: nobody waits for a thaw.

    A master that was frozen before it locked the directory, and lost its supervisor since, is
    known to nobody. It stands in nobody's way, and ends when it is thawed.
    """
    for world in WANTED:
        if not world.anybody_runs:
            continue
        for order in permutations(ACTS):
            end = calmly(world, order)
            assert without_unknown(end).is_well, f"{world}\nends as\n{end}"


def test_without_the_workers_some_jobs_would_not_come_back() -> None:
    """So their part in the protocol is needed."""
    indifferent = (supervisor_acts, master_acts)
    assert any(
        world.anybody_runs and not world.is_over and not calmly(world, indifferent).is_well
        for world in WANTED
    )


def without_unknown(world: World) -> World:
    unknown = [m for m in world.masters if m.phase == NEW and m.frozen and not m.is_child]
    for master in unknown:
        world = world.with_master(master, None)
    return world


def test_a_client_s_look_brings_back_a_job_of_which_nothing_runs() -> None:
    for world in WANTED:
        if world.anybody_runs or world.is_over:
            continue
        # A frozen supervisor is killed by the first look and replaced by the second.
        end = calmly(looks(looks(world)), ACTS)
        assert without_unknown(end).is_well, f"{world}\nends as\n{end}"


def test_an_acknowledged_stop_is_never_lost() -> None:
    for world in WANTED:
        if not world.stop_recorded:
            continue
        assert world.state != SUCCEEDED
        if world.state == RUNNING and world.anybody_runs:
            for order in permutations(ACTS):
                assert calmly(world, order).state == CANCELLED


def test_only_a_stop_cancels_a_job() -> None:
    """Neither SIGTERM to the master nor to everything does."""
    assert all(world.stop_recorded for world in WORLDS if world.state == CANCELLED)


def test_nobody_starts_a_job_that_is_being_deleted_again() -> None:
    """A client that was killed in the middle of a deletion can repeat it."""
    for world in WORLDS:
        if world.wanted:
            continue
        for order in permutations(ACTS):
            end = calmly(world, order)
            assert len(end.masters) <= len(world.masters)
            assert world.holder is not None or end.holder is None, "a master that nobody knew"
            assert end.supervisor is None or end.supervisor_frozen
        ended = replace(world, supervisor=None, masters=(), worker=None, contenders=())
        assert calmly(looks(looks(ended)), ACTS) == ended
