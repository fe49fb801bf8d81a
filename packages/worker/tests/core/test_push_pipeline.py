"""A task's pushes: whatever the answers are, each minibatch is in the model once, in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from edl_worker.core.push_pipeline import (
    AfterPush,
    AwaitReply,
    Compute,
    Fetch,
    FinishTask,
    Push,
    PushOutcome,
    PushPipeline,
)

ENDS = (PushOutcome.REFUSED, PushOutcome.OUT_OF_ORDER, PushOutcome.INVALID)


@dataclass
class Master:
    """The plane's half: one task, its count, and versions."""

    minibatches: int
    count: int = 0
    version: int = 0
    applied: list[int] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)

    def push(self, index: int, count: int, base: int, rejects: bool) -> PushOutcome:
        if index + count <= self.count:
            return PushOutcome.ALREADY_APPLIED
        if index != self.count:
            return PushOutcome.OUT_OF_ORDER
        if rejects:
            return PushOutcome.STALE
        self.applied += range(index, index + count)
        self.staleness.append(self.version - base)
        self.count += count
        self.version += count
        return PushOutcome.APPLIED


@dataclass
class Holder:
    """A worker that does what its push pipeline says, as the training loop does."""

    master: Master
    pushes: PushPipeline
    chance: random.Random
    stale: float = 0.0
    dies: float = 0.0
    rowless: float = 0.0
    local_steps: int = 1
    version: int | None = 0
    computed: list[int] = field(default_factory=list)
    base: int = 0
    in_flight: tuple[int, int, int] | None = None
    trace: list[str] = field(default_factory=list)

    def live(self) -> FinishTask | None:
        """Until the task is done, or the worker dies."""
        while True:
            if self.chance.random() < self.dies:
                # The push in flight may arrive before the lease is revoked, or never.
                if self.in_flight is not None and self.chance.random() < 0.5:
                    self.master.push(*self.in_flight, rejects=False)
                return None
            assert len(self.trace) < 1000, "the task never ends"
            step = self.pushes.next_action()
            match step:
                case Compute(index, fetch):
                    if index >= self.master.minibatches:
                        self.pushes.set_end(index)
                        continue
                    if self.in_flight is not None and self.chance.random() < self.rowless:
                        self.pushes.await_rows()
                        continue
                    self._compute(index, fetch)
                case Push(index, count):
                    self._push(index, count)
                case AwaitReply(index, count):
                    self._await_reply(index, count)
                case FinishTask():
                    return step

    def _compute(self, index: int, fetch: Fetch) -> None:
        self.trace.append(f"compute {index}")
        if self.in_flight is not None:
            assert self.pushes.overlap_is_on
            assert index == self.in_flight[0] + 1
            assert fetch is Fetch.NOTHING
        elif fetch is not Fetch.NOTHING:
            self.version = self.master.version
        if not self.computed:
            assert self.version is not None, "these values are no version"
            self.base = self.version
        if self.local_steps > 1:
            self.version = None
        self.computed.append(index)
        self.pushes.on_computed()

    def _push(self, index: int, count: int) -> None:
        self.trace.append(f"push {index}")
        assert self.in_flight is None, "one push at a time"
        assert self.computed == list(range(index, index + count)), "not the computed minibatches"
        assert count <= self.local_steps
        if index + count >= self.master.minibatches:
            self.pushes.set_end(index + count)
        self.in_flight = index, count, self.base
        self.computed.clear()
        self.pushes.on_pushed()

    def _await_reply(self, index: int, count: int) -> None:
        self.trace.append(f"reply {index}")
        assert self.in_flight is not None
        assert self.in_flight[:2] == (index, count)
        outcome = self.master.push(*self.in_flight, rejects=self.chance.random() < self.stale)
        if outcome is PushOutcome.APPLIED and self.chance.random() < 0.1:
            # The reply was lost, and the call repeated.
            outcome = self.master.push(*self.in_flight, rejects=False)
        self.in_flight = None
        came = self.chance.random() < 0.9 or outcome is not PushOutcome.STALE
        if self.local_steps > 1:
            came = self.chance.random() < 0.9
        if came:
            self.version = self.master.version
        then = self.pushes.on_reply(outcome, values_came=came, permit_granted=False)
        assert then in (AfterPush.ADVANCE, AfterPush.RECOMPUTE)
        if then is AfterPush.RECOMPUTE:
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
        pushes = PushPipeline(master.count, sync=False, overlap=overlap, local_steps=local_steps)
        holder = Holder(master, pushes, chance, stale, dies, rowless, local_steps)
        done = holder.live()
    assert done == FinishTask(master.minibatches)
    assert master.applied == list(range(master.minibatches))
    assert max(master.staleness, default=0) <= overlap


def test_without_overlap_nothing_is_computed_while_a_push_is_in_flight() -> None:
    holder = Holder(Master(3), PushPipeline(0, sync=False, overlap=False), random.Random(1))
    holder.live()
    assert holder.trace == [
        *("compute 0", "push 0", "reply 0", "compute 1", "push 1", "reply 1"),
        *("compute 2", "push 2", "reply 2"),
    ]


def test_with_overlap_the_next_minibatch_is_computed_before_the_answer() -> None:
    holder = Holder(Master(4), PushPipeline(1, sync=False, overlap=True), random.Random(1))
    holder.master.count = 1
    holder.live()
    assert holder.trace == [
        *("compute 1", "push 1", "compute 2", "reply 1"),
        *("push 2", "compute 3", "reply 2", "push 3", "reply 3"),
    ]
    assert holder.master.staleness == [0, 1, 1]


def test_after_a_stale_gradient_the_task_goes_on_without_overlap() -> None:
    pushes = PushPipeline(0, sync=False, overlap=True)
    pushes.on_computed()
    pushes.on_pushed()
    assert pushes.next_action() == Compute(1, Fetch.NOTHING)
    pushes.on_computed()
    assert pushes.next_action() == AwaitReply(0)
    assert (
        pushes.on_reply(PushOutcome.STALE, values_came=False, permit_granted=False)
        is AfterPush.RECOMPUTE
    )
    assert pushes.next_action() == Compute(0, Fetch.PARAMETERS), "and the other gradient is dropped"
    pushes.on_computed()
    assert pushes.next_action() == Push(0)
    pushes.on_pushed()
    assert pushes.next_action() == AwaitReply(0)
    assert not pushes.overlap_is_on


def test_a_minibatch_whose_rows_are_not_here_waits_for_the_answer() -> None:
    pushes = PushPipeline(0, sync=False, overlap=True)
    pushes.on_computed()
    pushes.on_pushed()
    assert pushes.next_action() == Compute(1, Fetch.NOTHING)
    pushes.await_rows()
    assert pushes.next_action() == AwaitReply(0)
    pushes.on_reply(PushOutcome.APPLIED, values_came=True, permit_granted=False)
    assert pushes.next_action() == Compute(1, Fetch.NOTHING)
    pushes.on_computed()
    pushes.on_pushed()
    assert pushes.next_action() == Compute(2, Fetch.NOTHING), "only once"


@pytest.mark.parametrize("outcome", ENDS)
def test_an_answer_that_ends_the_task_applies_nothing(outcome: PushOutcome) -> None:
    pushes = PushPipeline(0, sync=False, overlap=True)
    pushes.on_computed()
    pushes.on_pushed()
    pushes.on_computed()
    then = pushes.on_reply(outcome, values_came=False, permit_granted=False)
    assert then in (AfterPush.DROP_TASK, AfterPush.RETURN_TASK, AfterPush.FAIL_TASK)
    assert pushes.next_action() == Push(0, 1), "the next one is still the first"


def test_a_task_without_minibatches_left_is_over() -> None:
    pushes = PushPipeline(3, sync=False, overlap=True)
    pushes.set_end(3)
    assert pushes.next_action() == FinishTask(3)


def test_a_synchronous_task_takes_a_permit_for_each_minibatch() -> None:
    pushes = PushPipeline(0, sync=True, overlap=False)
    assert pushes.next_action() == Compute(0, Fetch.PERMIT)
    pushes.on_computed()
    pushes.on_pushed()
    pushes.on_reply(PushOutcome.APPLIED, values_came=True, permit_granted=False)
    assert pushes.next_action() == Compute(1, Fetch.PERMIT)
    pushes.on_computed()
    pushes.on_pushed()
    pushes.on_reply(PushOutcome.APPLIED, values_came=True, permit_granted=True)
    assert pushes.next_action() == Compute(2, Fetch.NOTHING)


def test_local_steps_are_pushed_together_and_the_rest_at_the_end() -> None:
    master = Master(8, count=1)
    pushes = PushPipeline(1, sync=False, overlap=False, local_steps=3)
    holder = Holder(master, pushes, random.Random(0), local_steps=3)
    assert holder.live() == FinishTask(8)
    assert [line for line in holder.trace if "push" in line] == ["push 1", "push 4", "push 7"]
    assert master.applied == list(range(1, 8))


def test_a_leaving_worker_pushes_its_local_steps() -> None:
    pushes = PushPipeline(0, sync=False, overlap=False, local_steps=3)
    pushes.on_computed()
    pushes.on_computed()
    assert pushes.next_action() == Compute(2, Fetch.NOTHING)
    pushes.flush()
    assert pushes.next_action() == Push(0, 2)
    pushes.on_pushed()
    pushes.on_reply(PushOutcome.APPLIED, values_came=True, permit_granted=False)
    assert pushes.next_action() == Compute(2, Fetch.NOTHING)
    pushes.on_computed()
    assert pushes.next_action() == Compute(3, Fetch.NOTHING), "only once"


@pytest.mark.parametrize(
    ("sync", "overlap", "local_steps"), [(True, True, 1), (True, False, 2), (False, True, 2)]
)
def test_what_does_not_go_together(sync: bool, overlap: bool, local_steps: int) -> None:
    with pytest.raises(ValueError, match=r"local steps start|step permit"):
        PushPipeline(0, sync=sync, overlap=overlap, local_steps=local_steps)
