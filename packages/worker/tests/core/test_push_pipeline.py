"""A task's course: whatever the answers are, each minibatch is in the model once, in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from edl_worker.core.push_pipeline import (
    Compute,
    Course,
    Fetch,
    Finish,
    Move,
    Outcome,
    Push,
    Settle,
)

ENDS = (Outcome.REFUSED, Outcome.OUT_OF_ORDER, Outcome.INVALID)


@dataclass
class Master:
    """The plane's half: one task, its count, and versions."""

    minibatches: int
    count: int = 0
    version: int = 0
    applied: list[int] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)

    def push(self, index: int, count: int, base: int, rejects: bool) -> Outcome:
        if index + count <= self.count:
            return Outcome.ALREADY_APPLIED
        if index != self.count:
            return Outcome.OUT_OF_ORDER
        if rejects:
            return Outcome.STALE
        self.applied += range(index, index + count)
        self.staleness.append(self.version - base)
        self.count += count
        self.version += count
        return Outcome.APPLIED


@dataclass
class Holder:
    """A worker that does what its course says, as the training loop does."""

    master: Master
    course: Course
    chance: random.Random
    stale: float = 0.0
    dies: float = 0.0
    rowless: float = 0.0
    local_steps: int = 1
    version: int | None = 0
    computed: list[int] = field(default_factory=list)
    base: int = 0
    under_way: tuple[int, int, int] | None = None
    story: list[str] = field(default_factory=list)

    def live(self) -> Finish | None:
        """Until the task is done, or the worker dies."""
        while True:
            if self.chance.random() < self.dies:
                # What is under way may arrive before the lease is revoked, or never.
                if self.under_way is not None and self.chance.random() < 0.5:
                    self.master.push(*self.under_way, rejects=False)
                return None
            assert len(self.story) < 1000, "this never ends"
            step = self.course.next()
            match step:
                case Compute(index, fetch):
                    if index >= self.master.minibatches:
                        self.course.ends_at(index)
                        continue
                    if self.under_way is not None and self.chance.random() < self.rowless:
                        self.course.lacks_rows()
                        continue
                    self._compute(index, fetch)
                case Push(index, count):
                    self._push(index, count)
                case Settle(index, count):
                    self._settle(index, count)
                case Finish():
                    return step

    def _compute(self, index: int, fetch: Fetch) -> None:
        self.story.append(f"compute {index}")
        if self.under_way is not None:
            assert self.course.overlaps
            assert index == self.under_way[0] + 1
            assert fetch is Fetch.NOTHING
        elif fetch is not Fetch.NOTHING:
            self.version = self.master.version
        if not self.computed:
            assert self.version is not None, "these values are no version"
            self.base = self.version
        if self.local_steps > 1:
            self.version = None
        self.computed.append(index)
        self.course.computed()

    def _push(self, index: int, count: int) -> None:
        self.story.append(f"push {index}")
        assert self.under_way is None, "one push at a time"
        assert self.computed == list(range(index, index + count)), "others than were computed"
        assert count <= self.local_steps
        if index + count >= self.master.minibatches:
            self.course.ends_at(index + count)
        self.under_way = index, count, self.base
        self.computed.clear()
        self.course.pushed()

    def _settle(self, index: int, count: int) -> None:
        self.story.append(f"settle {index}")
        assert self.under_way is not None
        assert self.under_way[:2] == (index, count)
        outcome = self.master.push(*self.under_way, rejects=self.chance.random() < self.stale)
        if outcome is Outcome.APPLIED and self.chance.random() < 0.1:
            # The answer was lost, and the call repeated.
            outcome = self.master.push(*self.under_way, rejects=False)
        self.under_way = None
        came = self.chance.random() < 0.9 or outcome is not Outcome.STALE
        if self.local_steps > 1:
            came = self.chance.random() < 0.9
        if came:
            self.version = self.master.version
        move = self.course.answered(outcome, values_came=came, slot_granted=False)
        assert move in (Move.NEXT, Move.AGAIN)
        if move is Move.AGAIN:
            self.computed.clear()


@pytest.mark.parametrize(("overlap", "local_steps"), [(False, 1), (True, 1), (False, 3)])
@pytest.mark.parametrize("seed", range(300))
def test_each_minibatch_is_in_the_model_once_whatever_is_answered(
    seed: int, overlap: bool, local_steps: int
) -> None:
    chance = random.Random(seed)
    master = Master(chance.randrange(8))
    stale, dies = chance.choice((0.0, 0.2, 0.6)), chance.choice((0.0, 0.02, 0.1))
    rowless = chance.choice((0.0, 0.3))
    done = None
    while done is None:
        course = Course(master.count, sync=False, overlap=overlap, local_steps=local_steps)
        holder = Holder(master, course, chance, stale, dies, rowless, local_steps)
        done = holder.live()
    assert done == Finish(master.minibatches)
    assert master.applied == list(range(master.minibatches))
    assert max(master.staleness, default=0) <= overlap


def test_without_overlap_nothing_is_computed_while_a_push_is_under_way() -> None:
    holder = Holder(Master(3), Course(0, sync=False, overlap=False), random.Random(1))
    holder.live()
    assert holder.story == [
        *("compute 0", "push 0", "settle 0", "compute 1", "push 1", "settle 1"),
        *("compute 2", "push 2", "settle 2"),
    ]


def test_with_overlap_the_next_minibatch_is_computed_before_the_answer() -> None:
    holder = Holder(Master(4), Course(1, sync=False, overlap=True), random.Random(1))
    holder.master.count = 1
    holder.live()
    assert holder.story == [
        *("compute 1", "push 1", "compute 2", "settle 1"),
        *("push 2", "compute 3", "settle 2", "push 3", "settle 3"),
    ]
    assert holder.master.staleness == [0, 1, 1]


def test_after_a_stale_gradient_the_task_goes_on_without_overlap() -> None:
    course = Course(0, sync=False, overlap=True)
    course.computed()
    course.pushed()
    assert course.next() == Compute(1, Fetch.NOTHING)
    course.computed()
    assert course.next() == Settle(0)
    assert course.answered(Outcome.STALE, values_came=False, slot_granted=False) is Move.AGAIN
    assert course.next() == Compute(0, Fetch.PARAMETERS), "and the other gradient is dropped"
    course.computed()
    assert course.next() == Push(0)
    course.pushed()
    assert course.next() == Settle(0)
    assert not course.overlaps


def test_a_minibatch_whose_rows_are_not_here_waits_for_the_answer() -> None:
    course = Course(0, sync=False, overlap=True)
    course.computed()
    course.pushed()
    assert course.next() == Compute(1, Fetch.NOTHING)
    course.lacks_rows()
    assert course.next() == Settle(0)
    course.answered(Outcome.APPLIED, values_came=True, slot_granted=False)
    assert course.next() == Compute(1, Fetch.NOTHING)
    course.computed()
    course.pushed()
    assert course.next() == Compute(2, Fetch.NOTHING), "only once"


@pytest.mark.parametrize("outcome", ENDS)
def test_an_answer_that_ends_the_task_settles_nothing(outcome: Outcome) -> None:
    course = Course(0, sync=False, overlap=True)
    course.computed()
    course.pushed()
    course.computed()
    move = course.answered(outcome, values_came=False, slot_granted=False)
    assert move in (Move.DROP, Move.HAND_BACK, Move.FAIL)
    assert course.settled == 0


def test_a_task_without_minibatches_left_is_over() -> None:
    course = Course(3, sync=False, overlap=True)
    course.ends_at(3)
    assert course.next() == Finish(3)


def test_a_synchronous_task_takes_a_slot_for_each_minibatch() -> None:
    course = Course(0, sync=True, overlap=False)
    assert course.next() == Compute(0, Fetch.SLOT)
    course.computed()
    course.pushed()
    course.answered(Outcome.APPLIED, values_came=True, slot_granted=False)
    assert course.next() == Compute(1, Fetch.SLOT)
    course.computed()
    course.pushed()
    course.answered(Outcome.APPLIED, values_came=True, slot_granted=True)
    assert course.next() == Compute(2, Fetch.NOTHING)


def test_local_steps_are_pushed_together_and_the_rest_at_the_end() -> None:
    master = Master(8, count=1)
    course = Course(1, sync=False, overlap=False, local_steps=3)
    holder = Holder(master, course, random.Random(0), local_steps=3)
    assert holder.live() == Finish(8)
    assert [line for line in holder.story if "push" in line] == ["push 1", "push 4", "push 7"]
    assert master.applied == list(range(1, 8))


def test_who_leaves_pushes_what_local_steps_have_done() -> None:
    course = Course(0, sync=False, overlap=False, local_steps=3)
    course.computed()
    course.computed()
    assert course.next() == Compute(2, Fetch.NOTHING)
    course.flush()
    assert course.next() == Push(0, 2)
    course.pushed()
    course.answered(Outcome.APPLIED, values_came=True, slot_granted=False)
    assert course.next() == Compute(2, Fetch.NOTHING)
    course.computed()
    assert course.next() == Compute(3, Fetch.NOTHING), "only once"


@pytest.mark.parametrize(
    ("sync", "overlap", "local_steps"), [(True, True, 1), (True, False, 2), (False, True, 2)]
)
def test_what_does_not_go_together(sync: bool, overlap: bool, local_steps: int) -> None:
    with pytest.raises(ValueError, match=r"local steps begin|step slot"):
        Course(0, sync=sync, overlap=overlap, local_steps=local_steps)
