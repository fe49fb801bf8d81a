"""The protocol of docs/adr/0016, explored: after every death, freeze and thaw the job comes back.

All states of the model that faults and requests can reach are visited breadth-first; from each of
them the processes that still run must bring the job back without a further fault, in whatever
order they act: also one that changes all the time, as long as no process waits for ever. Only the
supervisor's order is bound. Its act is to wait for longer than a master may be silent, and in that
time a running master acts.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from fair_schedules import Acts, endless
from supervision_model import (
    CANCELLED,
    NEW,
    RUNNING,
    SUCCEEDED,
    World,
    looks,
    master_acts,
    successors,
    supervisor_acts,
    worker_acts,
)

from edl.core.supervision import Master

MAX_MASTERS = 2
"""At once: a third would be one of these again."""

MAX_CONTENDERS = 2


@functools.cache
def find_reachable() -> set[World]:
    """All states of a job that a client has just submitted."""
    first = looks(World())
    seen, queue = {first}, deque([first])
    while queue:
        for world in successors(queue.popleft()):
            few = len(world.masters) <= MAX_MASTERS and len(world.contenders) <= MAX_CONTENDERS
            if few and world not in seen:
                seen.add(world)
                queue.append(world)
    return seen


Moment = tuple[World, bool]
"""A state, and whether its running masters have acted since the supervisor did."""

SUPERVISOR, MASTERS, WORKER = "supervisor", "masters", "worker"
ALL_PROCESSES = frozenset((SUPERVISOR, MASTERS, WORKER))


@functools.cache
def acts(moment: Moment) -> dict[str, Moment]:
    """Yield what may happen next if nothing goes wrong: one step of one process."""
    world, have_acted = moment
    after = {MASTERS: (master_acts(world), True), WORKER: (worker_acts(world), have_acted)}
    if have_acted or all(master.frozen for master in world.masters):
        after[SUPERVISOR] = supervisor_acts(world), False
    return after


def acts_without_worker(moment: Moment) -> dict[str, Moment]:
    return {name: after for name, after in acts(moment).items() if name != WORKER}


def ends(
    worlds: Iterable[World],
    acts: Acts[Moment] = acts,
    processes: frozenset[str] = ALL_PROCESSES,
) -> set[World]:
    """The states in which calm runs from any of these can end up."""
    starts = [(world, have_acted) for world in worlds for have_acted in (False, True)]
    return {world for world, _ in endless(starts, acts, processes)}


def find_wanted() -> list[World]:
    return [world for world in find_reachable() if world.wanted]


def test_the_exploration_reaches_what_it_is_about() -> None:
    assert len(find_reachable()) > 20_000
    assert any(len(world.masters) == 2 for world in find_reachable())
    assert any(world.contenders == (False, True) for world in find_reachable())
    assert any(world.supervisor and world.contenders for world in find_reachable()), (
        "two supervisors"
    )
    assert any(
        world.supervisor and world.supervisor.master is Master.ORPHAN for world in find_reachable()
    )
    assert any(world.end and not world.cleared and not world.masters for world in find_reachable())
    assert {world.state for world in find_reachable()} == {RUNNING, CANCELLED, SUCCEEDED}


def test_never_do_two_masters_hold_one_job() -> None:
    assert all(sum(master.holds for master in world.masters) <= 1 for world in find_reachable())


def test_while_any_process_runs_the_job_comes_back() -> None:
    """Frozen processes stay frozen: no process waits for a thaw.

    A master that was frozen before it locked the directory, and lost its supervisor since, is
    known to no process. It is in no other's way, and ends when it is thawed.
    """
    found = ends(world for world in find_wanted() if world.any_process_runs)
    assert len(found) > 100
    for end in found:
        assert without_unknown(end).is_well, end


def test_without_the_workers_some_jobs_would_not_come_back() -> None:
    """So their part in the protocol is needed."""
    alone = (world for world in find_wanted() if world.any_process_runs and not world.is_over)
    found = ends(alone, acts_without_worker, ALL_PROCESSES - {WORKER})
    assert not all(without_unknown(end).is_well for end in found)


def without_unknown(world: World) -> World:
    unknown = [m for m in world.masters if m.phase == NEW and m.frozen and not m.is_child]
    for master in unknown:
        world = world.with_master(master, None)
    return world


def test_a_client_s_look_brings_back_a_job_of_which_nothing_runs() -> None:
    dead = [world for world in find_wanted() if not world.any_process_runs and not world.is_over]
    # A frozen supervisor is killed by the first look and replaced by the second.
    found = ends(looks(looks(world)) for world in dead)
    assert found
    for end in found:
        assert without_unknown(end).is_well, end


def test_an_acknowledged_stop_is_never_lost() -> None:
    stopped = [world for world in find_wanted() if world.stop_recorded]
    assert all(world.state != SUCCEEDED for world in stopped)
    found = ends(world for world in stopped if world.any_process_runs)
    assert found
    assert all(end.state == CANCELLED for end in found)


def test_only_a_stop_cancels_a_job() -> None:
    """Neither SIGTERM to the master nor to everything does."""
    assert all(world.stop_recorded for world in find_reachable() if world.state == CANCELLED)


def test_no_process_starts_a_job_again_that_is_being_deleted() -> None:
    """A client that was killed in the middle of a deletion can repeat it."""
    unwanted = [world for world in find_reachable() if not world.wanted]
    for world in unwanted:
        for _, (after, _) in acts((world, True)).items():
            assert len(after.masters) <= len(world.masters)
            assert world.holder is not None or after.holder is None, "an unknown master"
    assert all(end.supervisor is None or end.supervisor_frozen for end in ends(unwanted))
    for world in unwanted:
        ended = replace(world, supervisor=None, masters=(), worker=None, contenders=())
        assert ends([looks(looks(ended))]) == {ended}
