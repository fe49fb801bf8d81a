"""The counting model under storms of lost replies, repeats, deaths, re-grants and restarts.

One weight per record, learning rate 1, gradient -1 for each record of the minibatch: a weight is
how often its record has trained the model. Whatever happens, in whatever order, the weights say
what the counts say; and at the end every weight is exactly 1.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from edl_master.core.identifiers import TaskKey, Token, Version
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.parameters.permits import PermitGranted, PermitPending
from edl_master.core.parameters.push import PushOutcome, PushResult
from edl_master.core.parameters.snapshot import Snapshot

from .planes import (
    GradientPush,
    ParameterPlane,
    a_push,
    row_payload,
    rows_of,
    sgd,
    small_plane,
    training_task,
    values_of,
    zero_table,
)

Records = dict[TaskKey, list[range]]
"""The records of each minibatch of each task."""

MODES = st.one_of(
    st.just(Async()),
    st.builds(Bounded, st.integers(0, 2)),
    st.builds(Sync, st.integers(1, 4), st.just(Reduction.SUM)),
)


def row_id(number: int) -> int:
    """Any id is as good as any other: these are far apart, and some negative."""
    return number * 0x9E3779B97F4A7C15 % (1 << 64) - (1 << 63)


def counted_rows(plane: ParameterPlane, snapshot: Snapshot) -> Array:
    """How often each record has trained the table, by its rows and what is accumulated for them."""
    ids = [row_id(number) for number in range(plane.layout.variables[0].size)]
    counts = rows_of(plane, ids).reshape(-1).copy()
    arrays = snapshot.arrays
    if "accumulated/tables/0/ids" in arrays:
        position = {id_: at for at, id_ in enumerate(ids)}
        found = np.asarray(arrays["accumulated/tables/0/ids"]).tolist()
        for id_, value in zip(
            found, np.asarray(arrays["accumulated/tables/0/values"]), strict=True
        ):
            counts[position[id_]] -= value[0]
    return counts


@dataclass
class Worker:
    """A process that trains: it knows only what it was told."""

    task: TaskKey
    token: Token
    next: int
    base: Version
    incarnation: int
    unanswered: GradientPush | None = None
    permit: Version | None = None


@dataclass
class Saved:
    """Plane and task ledger, saved in one step."""

    snapshot: Snapshot
    done: set[TaskKey]


@dataclass
class Job:
    """The rest of a job around a plane: which tasks there are, and who holds them."""

    plane: ParameterPlane
    records: Records
    done: set[TaskKey] = field(default_factory=set)
    holder: dict[TaskKey, Worker] = field(default_factory=dict)
    last_token: int = 0
    incarnation: int = 0

    def lease(self, task: TaskKey) -> Worker:
        self.last_token += 1
        token = Token(self.last_token)
        applied = self.plane.grant(task, token)
        worker = Worker(task, token, applied, self.plane.version, self.incarnation)
        self.holder[task] = worker
        return worker

    def compute(self, worker: Worker) -> GradientPush:
        gradient = np.zeros(sum(len(r) for rs in self.records.values() for r in rs), np.float32)
        records = self.records[worker.task][worker.next]
        gradient[records.start : records.stop] = -1
        # The same in an embedding table: a row counts what the weight of its number counts.
        rows = row_payload([row_id(number) for number in records], np.full((len(records), 1), -1.0))
        return a_push(
            worker.task,
            worker.token,
            worker.next,
            len(records),
            worker.base,
            gradient,
            rows=(rows,),
        )

    def deliver(self, push: GradientPush) -> PushResult:
        """A push reaches the plane; its answer may be lost."""
        result = self.plane.push(push)
        holder = self.holder.get(push.task)
        if result.outcome is PushOutcome.APPLIED and holder is not None:
            holder.permit = None
        return result

    def answer(self, worker: Worker, push: GradientPush) -> PushOutcome:
        """Push, and let the worker draw its conclusions from the answer."""
        result = self.deliver(push)
        worker.unanswered = None
        worker.base = result.version
        match result.outcome:
            case PushOutcome.APPLIED | PushOutcome.ALREADY_APPLIED:
                worker.next = push.minibatch + 1
            case PushOutcome.REFUSED:
                assert self.holder.get(worker.task) is not worker, "the holder was refused"
            case PushOutcome.OUT_OF_ORDER if worker.incarnation < self.incarnation:
                pass  # a restart has undone what the worker had done before
            case PushOutcome.OUT_OF_ORDER | PushOutcome.INVALID:
                raise AssertionError(f"{result} for {push}")
        return result.outcome

    def close_if_done(self, worker: Worker) -> bool:
        """Complete a worker's task if the worker has it done and still holds it."""
        mine = self.holder.get(worker.task) is worker
        if not mine or worker.next < len(self.records[worker.task]):
            return False
        assert self.plane.applied_counts()[worker.task] == len(self.records[worker.task])
        self.plane.close(worker.task)
        self.done.add(worker.task)
        del self.holder[worker.task]
        return True

    def expected_weights(self) -> Array:
        """How often each record has trained the model, by the counts."""
        counts = self.plane.applied_counts()
        weights = np.zeros(sum(len(r) for rs in self.records.values() for r in rs), np.float32)
        for task, minibatches in self.records.items():
            applied = len(minibatches) if task in self.done else counts.get(task, 0)
            for records in minibatches[:applied]:
                weights[records.start : records.stop] = 1
        return weights

    def finish(self) -> None:
        """Train to the end with live workers; there must always be one that can go on."""
        for task in set(self.records) - self.done:
            lost = self.holder.get(task)
            if lost is not None:
                self.plane.revoke(task, lost.token)
            self.lease(task)
        while self.holder:
            moved = [self.step(worker) for worker in list(self.holder.values())]
            assert any(moved), "no worker can go on"

    def step(self, worker: Worker) -> bool:
        """One try of a live worker to go on."""
        if self.close_if_done(worker):
            return True
        if worker.unanswered is not None:
            self.answer(worker, worker.unanswered)
            return True
        match self.plane.request_permit(worker.task, worker.token):
            case PermitGranted(version):
                worker.base = version
                # An old message may have been counted after the worker was told to try again.
                counted = self.plane.applied_counts().get(worker.task, 0) > worker.next
                expected = PushOutcome.ALREADY_APPLIED if counted else PushOutcome.APPLIED
                outcome = self.answer(worker, self.compute(worker))
                assert outcome is expected, f"computed in vain: {outcome}"
                return True
            case PermitPending():
                return False
            case refused:
                raise AssertionError(refused)


class Storm(RuleBasedStateMachine):
    """A job to which everything happens that can happen."""

    workers = Bundle("workers")
    messages = Bundle("messages")
    saves = Bundle("saves")

    @initialize(
        target=workers,
        mode=MODES,
        sizes=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4),
    )
    def start(self, mode: UpdateMode, sizes: list[list[int]]) -> Any:
        records: Records = {}
        at = 0
        for number, minibatches in enumerate(sizes):
            records[training_task(number)] = []
            for size in minibatches:
                records[training_task(number)].append(range(at, at + size))
                at += size
        plane = small_plane(mode, sgd(), trainable=at, state=0, tables=(zero_table(),))
        self.job = Job(plane, records)
        return multiple(*map(self.job.lease, records))

    # --- the ordinary ----------------------------------------------------------------------

    def free_tasks(self) -> list[TaskKey]:
        return sorted(set(self.job.records) - self.job.done - set(self.job.holder))

    @precondition(lambda self: self.free_tasks())
    @rule(target=workers, pick=st.integers(0, 99))
    def lease(self, pick: int) -> Worker:
        tasks = self.free_tasks()
        return self.job.lease(tasks[pick % len(tasks)])

    @rule(worker=workers)
    def one_requests_a_permit(self, worker: Worker) -> None:
        self.ask(worker)

    @rule()
    def all_request_permits(self) -> None:
        for worker in self.job.holder.values():
            self.ask(worker)

    def ask(self, worker: Worker) -> None:
        match self.job.plane.request_permit(worker.task, worker.token):
            case PermitGranted(version):
                worker.base = worker.permit = version
            case PermitPending():
                assert self.job.plane.ledger.permits_held, "it waits, and no worker computes"

    @rule(
        target=messages,
        worker=workers,
        lost=st.sampled_from(["nothing", "nothing", "reply", "request"]),
    )
    def push(self, worker: Worker, lost: str) -> Any:
        """Compute a minibatch, or try again the one without an answer."""
        if worker.next >= len(self.job.records[worker.task]):
            return multiple()
        push = worker.unanswered or self.job.compute(worker)
        worker.unanswered = push
        match lost:
            case "nothing":
                self.job.answer(worker, push)
            case "reply":
                self.job.deliver(push)
        return push

    @rule(worker=workers)
    def go_on(self, worker: Worker) -> None:
        """Ask, compute, push and complete without trouble."""
        if self.job.holder.get(worker.task) is worker:
            self.job.step(worker)

    @rule(worker=workers)
    def complete(self, worker: Worker) -> None:
        self.job.close_if_done(worker)

    # --- the extraordinary -----------------------------------------------------------------

    @rule(message=messages)
    def an_old_message_arrives(self, message: GradientPush) -> None:
        self.job.deliver(message)

    @rule(worker=workers)
    def a_lease_is_lost(self, worker: Worker) -> None:
        """The worker may be dead, cut off or merely slow: it may go on all the same."""
        self.job.plane.revoke(worker.task, worker.token)
        if self.job.holder.get(worker.task) is worker:
            del self.job.holder[worker.task]

    @rule(target=workers, worker=workers)
    def a_lease_is_given_to_another(self, worker: Worker) -> Any:
        if worker.task in self.job.done:
            return multiple()
        return self.job.lease(worker.task)

    @rule()
    def flush(self) -> None:
        self.job.plane.flush()

    @precondition(lambda self: self.job.last_token > 0)
    @rule(target=saves)
    def save(self) -> Saved:
        return Saved(self.job.plane.snapshot(), set(self.job.done))

    @precondition(lambda self: self.job.last_token > 0)
    @rule(saved=saves)
    def the_master_restarts(self, saved: Saved) -> None:
        """Restart from any earlier snapshot; tokens go on growing, workers begin anew."""
        meta = json.loads(json.dumps(saved.snapshot.meta))
        plane = ParameterPlane.restore(
            replace(saved.snapshot, meta=meta), sgd(), self.job.plane.mode
        )
        self.job = Job(
            plane,
            self.job.records,
            copy.copy(saved.done),
            last_token=self.job.last_token,
            incarnation=self.job.incarnation + 1,
        )

    # --- what must always hold -------------------------------------------------------------

    @invariant()
    def every_counted_minibatch_is_in_once(self) -> None:
        snapshot = self.job.plane.snapshot()
        weights = values_of(self.job.plane)
        accumulated = snapshot.arrays.get("accumulated/gradient/trainable/float32")
        if accumulated is not None:
            weights = weights - np.asarray(accumulated)
        np.testing.assert_array_equal(weights, self.job.expected_weights())
        np.testing.assert_array_equal(
            counted_rows(self.job.plane, snapshot), self.job.expected_weights()
        )

    @invariant()
    def the_plane_is_sound(self) -> None:
        self.job.plane.check_invariants()
        mode, ledger = self.job.plane.mode, self.job.plane.ledger
        if isinstance(mode, Sync):
            assert ledger.permits_held + ledger.accumulated <= mode.grads_to_wait

    @invariant()
    def no_gradient_is_computed_in_vain(self) -> None:
        """A version does not pass while one of its step permits is held."""
        if isinstance(self.job.plane.mode, Sync):
            for worker in self.job.holder.values():
                assert worker.permit in (None, self.job.plane.version)

    def teardown(self) -> None:
        if not hasattr(self, "job"):
            return
        self.job.finish()
        self.job.plane.flush()
        np.testing.assert_array_equal(values_of(self.job.plane), 1)
        np.testing.assert_array_equal(counted_rows(self.job.plane, self.job.plane.snapshot()), 1)


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
