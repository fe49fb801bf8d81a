"""The steps of replicated training that count while workers join, leave and die."""

from __future__ import annotations

import pytest
from replica_member import Budget
from replica_schedules import explore, play
from replica_world import World

from edl_master.core.generations import (
    BeginGeneration,
    CountStep,
    EndGeneration,
    ExpelMember,
    Generation,
    LoseValues,
    NotAMember,
    ReleaseLeases,
    SaveValues,
    ValuesSaved,
    VersionOrigin,
)
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.replica_group import ReplicaGroup

A, B, C = WorkerId(0), WorkerId(1), WorkerId(2)
RUNS = 1000
ALL = {A: "a", B: "b", C: "c"}


def version(number: int) -> Version:
    return Version(number)


def group_of(*workers: WorkerId) -> ReplicaGroup[str]:
    """Return a group of workers that have the initial values."""
    group: ReplicaGroup[str] = ReplicaGroup(version(0))
    group.join(workers[0])
    for worker in workers[1:]:
        group.join(worker)
    assert group.generation is not None
    if group.is_ending:
        group.report(workers[0], group.generation.number, None, stopped=True)
    for worker in workers:
        group.report(worker, group.generation.number, version(0))
    return group


def test_a_first_worker_begins_with_the_values_of_the_store() -> None:
    group: ReplicaGroup[str] = ReplicaGroup(version(7))

    assert group.join(A) == [BeginGeneration(Generation(1, (A,), version(7), ()))]


def test_a_step_counts_when_all_members_have_it() -> None:
    group = group_of(A, B)

    assert group.report(B, 2, version(1), [{B: "b"}]) == []
    (counted,) = group.report(A, 2, version(1), [{A: "a"}])
    assert counted == CountStep(version(1), {A: "a", B: "b"})
    assert isinstance(counted, CountStep)
    assert list(counted.step) == [A, B], "in the order of the workers' numbers"


def test_one_of_the_farthest_is_asked_what_a_dead_member_has_added() -> None:
    group = group_of(A, B, C)
    group.report(A, 2, version(1), [{A: "a"}])
    group.lose(B)
    group.report(A, 2, version(1), [{A: "a"}], stopped=True)
    assert not group.must_report_all(A), "C may be farther"

    assert group.report(C, 2, version(1), [{C: "c"}], stopped=True) == []
    assert group.must_report_all(A)
    assert not group.must_report_all(C), "one is enough"
    effects = group.report(A, 2, version(1), [ALL], stopped=True, complete=True)
    begun = BeginGeneration(Generation(3, (A, C), version(1), (A, C)))
    assert effects == [CountStep(version(1), ALL), ReleaseLeases(B), begun]


def test_another_one_is_asked_if_the_one_that_was_asked_dies() -> None:
    group = group_of(A, B, C)
    group.lose(B)
    group.report(A, 2, version(1), [{A: "a"}], stopped=True)
    group.report(C, 2, version(1), [{C: "c"}], stopped=True)
    assert group.lose(A) == []

    assert group.must_report_all(C)


def test_a_step_that_a_member_has_is_kept_when_another_one_dies() -> None:
    group = group_of(A, B, C)
    assert group.generation is not None

    effects = group.lose(B)
    assert effects == [EndGeneration(group.generation)]
    group.report(C, 2, version(0), stopped=True)
    effects = group.report(A, 2, version(1), [ALL], stopped=True, complete=True)

    # It counts only once C has it, too: until then, A may die. B's leases wait for that.
    begun = Generation(3, (A, C), version(1), (A,))
    assert effects == [BeginGeneration(begun)]
    assert group.report(C, 3, version(1)) == [CountStep(version(1), ALL), ReleaseLeases(B)]


def test_a_step_that_no_member_has_returns_to_the_queue() -> None:
    group = group_of(A, B)
    group.report(B, 2, version(1), [{B: "b"}])

    group.lose(B)
    effects = group.report(A, 2, version(0), stopped=True)

    assert effects == [
        ReleaseLeases(B),
        BeginGeneration(Generation(3, (A,), version(0), (A,))),
    ]


def test_one_that_was_given_up_is_not_listened_to() -> None:
    group = group_of(A, B)
    group.lose(B)

    with pytest.raises(NotAMember):
        group.report(B, 2, version(1), [{B: "b"}])


def test_the_last_member_puts_its_values_aside_before_it_leaves() -> None:
    group = group_of(A)
    group.report(A, 1, version(1), [{A: "a"}])
    assert group.generation is not None

    assert group.leave(A) == [EndGeneration(group.generation)]
    assert group.report(A, 1, version(1), stopped=True) == [SaveValues(A)]
    assert group.receive_values(A, version(1))
    assert group.proceed() == [ValuesSaved(version(1), A), ReleaseLeases(A)]
    assert group.join(B) == [BeginGeneration(Generation(2, (B,), version(1), ()))]


def test_nothing_counts_between_the_values_of_a_version_and_what_is_done_with_them() -> None:
    group = group_of(A)
    group.report(A, 1, version(1), [{A: "a"}])
    group.save()
    begun = Generation(2, (A,), version(1), (A,), saves=True)
    assert group.report(A, 1, version(1), stopped=True) == [BeginGeneration(begun)]

    assert group.report(A, 2, version(3), [{A: "two"}, {A: "three"}]) == []
    assert group.receive_values(A, version(1))
    assert group.proceed() == [ValuesSaved(version(1), A)]
    assert group.proceed() == [
        CountStep(version(2), {A: "two"}),
        CountStep(version(3), {A: "three"}),
    ]


def test_one_report_counts_no_step_after_the_values_that_it_completes() -> None:
    group = group_of(A, B)
    group.report(B, 2, version(1), [{B: "b"}])
    group.report(A, 2, version(2), [{A: "a"}, {A: "two"}])
    group.save()
    group.report(B, 2, version(1), stopped=True)
    group.report(A, 2, version(2), [{A: "two"}], stopped=True, complete=True)
    assert group.receive_values(A, version(2))
    group.proceed()
    group.flush()
    group.report(A, 3, version(3), [{A: "two"}, {A: "three"}], stopped=True)

    effects = group.report(B, 3, version(3), [{A: "two"}, {A: "three"}], stopped=True)
    begun = Generation(4, (A, B), version(3), (A, B))
    saved = ValuesSaved(version(2), A)
    assert effects == [CountStep(version(2), {A: "two"}), saved, BeginGeneration(begun)]


def stop(group: ReplicaGroup[str], **unreachable: WorkerId) -> list[object]:
    """Have members A, B and so on stop, because of those that they cannot reach."""
    assert group.generation is not None
    number, effects = group.generation.number, []
    for name, worker in zip("ABC", list(group.generation.members), strict=False):
        peer = unreachable.get(name)
        effects += group.report(worker, number, version(0), stopped=True, unreachable=peer)
    return effects


def test_the_youngest_goes_if_two_members_cannot_reach_each_other() -> None:
    group = group_of(A, B)

    effects = stop(group, A=B, B=A)

    begun = BeginGeneration(Generation(3, (A,), version(0), (A,)))
    assert effects[1:] == [ExpelMember(B, A), ReleaseLeases(B), begun]


def test_the_member_goes_that_another_one_cannot_reach() -> None:
    group = group_of(A, B, C)

    effects = stop(group, C=A)

    assert ExpelMember(A, C) in effects
    assert group.generation is not None
    assert group.generation.members == (B, C)


def test_a_member_that_died_meanwhile_is_not_accused() -> None:
    group = group_of(A, B, C)
    assert group.generation is not None
    number = group.generation.number
    group.report(A, number, version(0), stopped=True, unreachable=B)
    group.lose(B)

    effects = group.report(C, number, version(0), stopped=True)

    assert not [each for each in effects if isinstance(each, ExpelMember)]
    assert group.generation.members == (A, C)


def test_values_that_no_one_wants_any_more_are_refused() -> None:
    group = group_of(A, B)
    group.report(A, 2, version(1), [{A: "a"}])
    group.report(B, 2, version(1), [{B: "b"}])
    group.save()
    for worker in (A, B):
        group.report(worker, 2, version(1), stopped=True)
    group.lose(A)

    assert not group.receive_values(A, version(1))
    begun = Generation(4, (B,), version(1), (B,), saves=True)
    assert BeginGeneration(begun) in group.report(B, 3, version(1), stopped=True)


def test_replaced_values_come_from_the_store() -> None:
    group = group_of(A)
    group.report(A, 1, version(1), [{A: "a"}])
    group.save()
    group.report(A, 1, version(1), stopped=True)
    group.receive_values(A, version(1))
    group.proceed()

    group.replace_values(version(2))
    effects = group.report(A, 2, version(1), stopped=True)
    assert effects == [BeginGeneration(Generation(3, (A,), version(2), ()))]
    assert group.origin == group.stored_origin == VersionOrigin("", 3), "not made by generation 2"


def test_saved_values_have_the_origin_of_their_version() -> None:
    group = group_of(A, B)
    assert group.stored_origin == VersionOrigin("", 0)
    group.report(B, 2, version(1), [{B: "b"}])
    group.report(A, 2, version(1), [{A: "a"}])
    group.save()
    for worker in (A, B):
        group.report(worker, 2, version(1), stopped=True)
    assert group.origin == VersionOrigin("", 2), "generation 3 begins with what 2 has made"

    group.flush()
    group.report(B, 3, version(2), [{B: "b"}], stopped=True)
    group.report(A, 3, version(2), [{A: "a"}], stopped=True)
    assert group.origin == VersionOrigin("", 3)
    assert group.receive_values(A, version(1))
    group.proceed()
    assert group.stored_origin == VersionOrigin("", 2), "it has not got version 2"


def test_when_all_members_die_the_job_goes_back_to_its_snapshot() -> None:
    group = group_of(A)
    group.report(A, 1, version(1), [{A: "a"}])

    assert group.lose(A) == [LoseValues()]
    assert group.join(B) == []


@pytest.mark.parametrize(
    ("records", "budget"),
    [
        (2, Budget(kill=1, fence=1)),
        (1, Budget(restart=1)),
        (1, Budget(leave=1, save=1)),
        (1, Budget(kill=1, save=1, flush=1)),
        (1, Budget(accuse=1, kill=1)),
        (1, Budget(accuse=2, save=1)),
    ],
    ids=[
        "kill and fence",
        "restart",
        "leave and save",
        "kill, save and flush",
        "accuse and kill",
        "accuse and save",
    ],
)
def test_every_order_of_events_counts_each_record_once(records: int, budget: Budget) -> None:
    world = World(tuple(range(records)), budget)
    world.do_start(0)
    world.do_start(1)

    assert explore(world, alike=True) > 1_000


TWO_MEMBERS = """
    join 0, begin 0, fetch 0, report 0, join 1, stop 0, begin 0, begin 1, fetch 1, report 1,
    add 0, add 1, take 0"""
"""A step that only the first of two members has."""


@pytest.mark.parametrize(
    "way",
    [
        TWO_MEMBERS,
        # It is given up. The second one makes another first step, of which there is a snapshot.
        TWO_MEMBERS
        + """, fence 0, stop 1, begin 1, add 1, take 1, report 1, want_values 0, stop 1, begin 1,
        send 1""",
        # The only member is given up. The next master counts less than that member holds.
        """join 0, begin 0, fetch 0, report 0, add 0, take 0, report 0, add 0, take 0, report 0,
        fence 0, join 1, decide 0, begin 1, fetch 1, report 1, add 1, take 1, report 1""",
    ],
    ids=["half a step", "a snapshot of another step", "fewer steps of a later master"],
)
def test_a_new_master_continues_from_what_members_hold_in_every_order_of_events(way: str) -> None:
    world = World((0, 1), Budget(fence=1, save=1))
    world.do_start(0)
    world.do_start(1)
    for action in way.split(","):
        name, worker = action.split()
        world.act((name, int(worker)))
    world.budget = Budget(restart=1)

    assert explore(world) > 100


def test_random_lives_count_each_record_once() -> None:
    for seed in range(RUNS):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
