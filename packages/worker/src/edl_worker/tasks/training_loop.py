"""The training loop of one task: each minibatch in the model exactly once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from edl_proto.v1 import parameters_pb2, task_pb2
from edl_worker.concurrency.background_call import Beside
from edl_worker.concurrency.shared_state import WorkerState
from edl_worker.core import prefetch_policy, push_pipeline
from edl_worker.core.push_pipeline import Course, Fetch, Move, Outcome
from edl_worker.embedding.tables import Tables, Wanted
from edl_worker.metrics import WorkerMetrics
from edl_worker.model_file import Batch
from edl_worker.tasks import task_errors
from edl_worker.tasks.lease_prefetcher import Assignment, Intake
from edl_worker.tasks.lookahead import Window
from edl_worker.training.replica import Replica
from edl_worker.training.trainer import Step, Trainer
from edl_worker.transport.master_client import MasterReplacedError

_OUTCOMES = {
    parameters_pb2.APPLIED: Outcome.APPLIED,
    parameters_pb2.ALREADY_APPLIED: Outcome.ALREADY_APPLIED,
    parameters_pb2.STALE: Outcome.STALE,
    parameters_pb2.REFUSED: Outcome.REFUSED,
    parameters_pb2.OUT_OF_ORDER: Outcome.OUT_OF_ORDER,
    parameters_pb2.INVALID: Outcome.INVALID,
}

Reply = parameters_pb2.PushReply | parameters_pb2.PullReply

_LAST_ANSWER_S = 1.0
"""How long a worker that leaves waits for the answer to its last push."""


class TaskLostError(Exception):
    """The task is not this worker's any more; nothing is left to do for it."""


class OutOfOrderError(Exception):
    """Worker and master disagree about which minibatch is the next one of the task."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What became of a whole task."""

    minibatches: int
    examples: int


@dataclass(slots=True)
class _Task:
    """A task that is being trained.

    Attributes:
        course: says what comes next.
        batches: its minibatches from the first that is not in the model yet on.
        wanted: rows that they need of embedding tables, by index, where that is known.
        examples: in the model, of this holder and those before.
        step: gradient that was computed last.
        base: version that it, or the first of several local steps, was computed on.
        loss: sum over the records of the local steps that were not pushed yet.
        compute_s: how long computing took of what was not pushed yet.
        header: of the last push.
        following: rows that its answer brings.
        exchanging_s: how long computing has waited for exchanges since the last answer.
        answered: when the last answer was there.
    """

    assignment: Assignment
    course: Course
    batches: Window[Batch]
    wanted: dict[int, Wanted]
    examples: int
    answered: float
    step: Step | None = None
    base: int = 0
    loss: float = 0.0
    compute_s: float = 0.0
    header: parameters_pb2.PushHeader | None = None
    following: Wanted | None = None
    exchanging_s: float = 0.0


@dataclass(slots=True)
class TrainingLoop:
    """Trains tasks, one after the other, with one copy of the parameters.

    Attributes:
        sync: gradients are computed under step slots.
        overlap: the next minibatch is computed while a gradient is being pushed.
        local_steps: minibatches that are applied here before they are pushed together.
        minibatch_size: of the job.
        prefetch_lead_s: how much work is left when the next lease is asked for.
        tables: embedding tables of the model, if it has any.
        step_s: how long the last step took; None before the first one.
    """

    replica: Replica
    trainer: Trainer
    state: WorkerState
    metrics: WorkerMetrics
    zoo: Path
    sync: bool
    overlap: bool
    local_steps: int
    minibatch_size: int
    prefetch_lead_s: float
    tables: Tables | None = None
    step_s: float | None = None
    _beside: Beside[Reply] = field(default_factory=lambda: Beside("exchange"))

    def run(self, assignment: Assignment, intake: Intake) -> Trained:
        """Train one task from where its last holder left it.

        Raises:
            TaskLostError: somebody else has it now.
            OutOfOrderError: it has to be handed back.
            EdlError: it failed.
            LeavingError: the worker has to leave; the task stays held.
            MasterReplacedError: what was computed is for a master that is gone.
        """
        lease = assignment.lease
        assert assignment.batches is not None, "a training task has records"
        first = lease.skip_minibatches
        task = _Task(
            assignment,
            Course(
                first,
                sync=self.sync,
                overlap=self.overlap and not self.sync and self.local_steps == 1,
                local_steps=1 if self.sync else self.local_steps,
            ),
            Window(assignment.batches, first),
            wanted={},
            examples=first * self.minibatch_size,
            answered=time.perf_counter(),
        )
        expected = prefetch_policy.expected_minibatches(
            lease.records.stop - lease.records.start, self.minibatch_size
        )
        try:
            while True:
                match task.course.next():
                    case push_pipeline.Compute(index, fetch):
                        if prefetch_policy.is_due(
                            done=index,
                            expected=expected,
                            step_s=self.step_s,
                            lead_s=self.prefetch_lead_s,
                        ):
                            intake.request()
                        self._compute(task, index, fetch)
                    case push_pipeline.Push(index, count):
                        self._push(task, index, count)
                    case push_pipeline.Settle(index, count):
                        self._settle(task, index, count)
                    case push_pipeline.Finish(minibatches):
                        return Trained(minibatches, task.examples)
        finally:
            # Whatever ended the task: nothing is on its way any more when the next one begins. Who
            # leaves waits a little, so that what was computed counts; if it comes too late,
            # the lease has been handed back and the master refuses it.
            self._beside.drop(lambda s: not self.state.leaving or s < _LAST_ANSWER_S)

    def _compute(self, task: _Task, index: int, fetch: Fetch) -> None:
        """Compute the gradient of a minibatch, or see that the task ends before it."""
        if task.course.waiting and self.state.leaving:
            task.course.flush()  # what local steps have done counts; only then leave
            return
        batch = self._read(task, index)
        if batch is None:
            task.course.ends_at(index)
            return
        wanted = self._wanted(task, index)
        if not self._beside.is_busy:
            self._fetch(task.assignment, fetch, wanted)
        elif not self.replica.has_rows(wanted):
            task.course.lacks_rows()
            return
        self._check(task.assignment)
        ahead = None
        if task.course.overlaps and not self._beside.is_busy and self.tables is not None:
            # The push of this step will bring rows of the next minibatch but one.
            ahead = self._wanted(task, index + 1)
            if ahead is not None:
                self._beside.begin(self.replica.ask(ahead))
        self.state.phase = task_pb2.COMPUTING
        started = time.perf_counter()
        if self.local_steps > 1:
            self._move(task, index, batch)
        else:
            assert self.replica.version is not None, "there are values"
            task.base = self.replica.version
            with self._explained(task.assignment.lease, index, batch):
                task.step = self.trainer.compute(batch, wanted, self.replica.rows(wanted))
        seconds = time.perf_counter() - started
        task.compute_s += seconds
        self.metrics.compute_s.observe(seconds)
        task.course.computed()
        if ahead is not None:
            self.replica.take(self._beside.result(), ahead)

    def _move(self, task: _Task, index: int, batch: Batch) -> None:
        """One local step."""
        if not task.course.waiting:
            task.base = self.replica.diverge()
            self.trainer.begin_local(task.base)
            task.loss = 0.0
        with self._explained(task.assignment.lease, index, batch):
            loss = self.trainer.move(batch)
        if not math.isfinite(loss):
            lease, version = task.assignment.lease, task.base
            raise task_errors.not_finite(lease, index, version, f"the loss is {loss}")
        task.loss += loss * batch.size

    def _push(self, task: _Task, index: int, count: int) -> None:
        """Begin to push the last gradient; where nothing overlaps, that is for ``_settle``."""
        batches = [task.batches.get(at) for at in range(index, index + count)]
        records = sum(batch.size for batch in batches if batch is not None)
        step, task.step = task.step, None
        if self.local_steps > 1:
            step = self.trainer.moved(task.loss / records)
        assert step is not None, "a gradient was computed"
        if not step.is_finite:
            lease, version = task.assignment.lease, task.base
            raise task_errors.not_finite(lease, index, version, f"the loss is {step.loss}")
        if self._read(task, index + count) is None:
            task.course.ends_at(index + count)
        if self.local_steps == 1 or not self.state.leaving:
            self._check(task.assignment)
        header = parameters_pb2.PushHeader(
            lease=task.assignment.ref,
            minibatch=index,
            minibatches=count,
            records=records,
            base_version=task.base,
            compute_s=task.compute_s,
            pull=push_pipeline.wants_values(last=task.course.is_last(index + count - 1)),
        )
        task.compute_s = 0.0
        task.course.pushed()
        beside = isinstance(task.course.next(), push_pipeline.Compute)
        # While the gradient is pushed the next minibatch is computed on rows that are there.
        task.following = self._wanted(task, index + (2 if beside else 1))
        started = time.perf_counter()
        wanted = self._wanted(task, index)
        push = self.replica.push(header, step, wanted, task.following)
        if beside:
            self._beside.begin(push)
        else:
            self._beside.keep(push)
        task.header = header
        task.exchanging_s += time.perf_counter() - started

    def _settle(self, task: _Task, index: int, count: int) -> None:
        """Wait for the answer to a push, and do what it says."""
        started = time.perf_counter()
        self.state.phase = task_pb2.EXCHANGING
        reply = self._beside.result()
        assert isinstance(reply, parameters_pb2.PushReply), "a push was under way"
        assert task.header is not None, "there was a push"
        move = task.course.answered(
            _OUTCOMES[reply.outcome],
            values_came=reply.nbytes > 0,
            slot_granted=reply.slot_granted,
        )
        self.replica.take(reply, task.following)
        now = time.perf_counter()
        self.metrics.exchange_s.observe(task.exchanging_s + now - started)
        self.metrics.pushed(reply.outcome)
        task.exchanging_s = 0.0
        match move:
            case Move.NEXT:
                self.metrics.steps.inc(count)
                task.examples += task.header.records
                task.batches.drop_before(index + count)
                for at in range(index, index + count):
                    task.wanted.pop(at, None)
                self.step_s, task.answered = (now - task.answered) / count, now
            case Move.AGAIN:
                task.step, task.compute_s = None, 0.0
                self.replica.drop_rows()
            case Move.DROP:
                raise TaskLostError
            case Move.HAND_BACK:
                raise OutOfOrderError
            case Move.FAIL:
                raise task_errors.not_finite(
                    task.assignment.lease,
                    index,
                    task.header.base_version,
                    f"the gradient holds an infinity or not a number (loss {task.header.loss:g})",
                )

    def _read(self, task: _Task, index: int) -> Batch | None:
        started, read = time.perf_counter(), task.batches.read
        batch = task.batches.get(index)
        if task.batches.read > read:
            self.metrics.input_s.observe(time.perf_counter() - started)
        return batch

    def _fetch(self, assignment: Assignment, fetch: Fetch, wanted: Wanted | None) -> None:
        match fetch:
            case Fetch.NOTHING if self.replica.has_rows(wanted):
                pass
            case Fetch.NOTHING | Fetch.PARAMETERS:
                self.state.phase = task_pb2.EXCHANGING
                while not self.replica.refresh(wanted):
                    self._check(assignment)
                    self.state.sleep(0.05)  # another worker is about to send the initial values
            case Fetch.SLOT:
                self.state.phase = task_pb2.WAITING
                while not self.replica.acquire_slot(assignment.ref, wanted):
                    self._check(assignment)

    def _check(self, assignment: Assignment) -> None:
        self.state.check()
        if self.state.replaced:
            raise MasterReplacedError("said a heartbeat")
        if self.state.is_lost(assignment.ref):
            raise TaskLostError

    def _wanted(self, task: _Task, index: int) -> Wanted | None:
        """The rows that a minibatch needs of embedding tables; found out once."""
        if self.tables is None:
            return None
        if index not in task.wanted:
            batch = self._read(task, index)
            if batch is None:
                return None
            with self._explained(task.assignment.lease, index, batch):
                task.wanted[index] = self.tables.wanted(batch, training=True)
        return task.wanted[index]

    @contextmanager
    def _explained(self, lease: task_pb2.Lease, index: int, batch: Batch) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise task_errors.explain(
                error,
                doing="the training step raised",
                where=task_errors.place(lease, index),
                zoo=self.zoo,
                model=self.trainer.model,
                batch=batch,
            ) from error
