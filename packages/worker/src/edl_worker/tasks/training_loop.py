"""The training loop of one task: each minibatch in the model exactly once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from edl_proto.v1 import parameters_pb2, task_pb2
from edl_worker.concurrency.background_call import BackgroundCall
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core import prefetch_policy, push_pipeline
from edl_worker.core.push_pipeline import AfterPush, Fetch, PushOutcome, PushPipeline
from edl_worker.embedding.tables import EmbeddingTables, RowRequest
from edl_worker.metrics import WorkerMetrics
from edl_worker.model_file import Batch
from edl_worker.tasks import task_errors
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.lookahead import SlidingWindow
from edl_worker.training.replica import ParameterReplica
from edl_worker.training.trainer import StepResult, Trainer
from edl_worker.transport.master_client import MasterReplacedError

_OUTCOMES = {
    parameters_pb2.APPLIED: PushOutcome.APPLIED,
    parameters_pb2.ALREADY_APPLIED: PushOutcome.ALREADY_APPLIED,
    parameters_pb2.STALE: PushOutcome.STALE,
    parameters_pb2.REFUSED: PushOutcome.REFUSED,
    parameters_pb2.OUT_OF_ORDER: PushOutcome.OUT_OF_ORDER,
    parameters_pb2.INVALID: PushOutcome.INVALID,
}

Reply = parameters_pb2.PushReply | parameters_pb2.PullReply

_LAST_ANSWER_S = 1.0
"""How long a worker that leaves waits for the answer to its last push."""


class TaskLostError(Exception):
    """The task is not this worker's any more; nothing is left to do for it."""


class OutOfOrderError(Exception):
    """Worker and master disagree about which minibatch is the next one of the task."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What became of a whole task."""

    minibatches: int
    examples: int


@dataclass(slots=True)
class _TrainingTask:
    """A task that is being trained.

    Attributes:
        pushes: says what comes next.
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
    pushes: PushPipeline
    batches: SlidingWindow[Batch]
    wanted: dict[int, RowRequest]
    examples: int
    answered: float
    step: StepResult | None = None
    base: int = 0
    loss: float = 0.0
    compute_s: float = 0.0
    header: parameters_pb2.PushHeader | None = None
    following: RowRequest | None = None
    exchanging_s: float = 0.0


@dataclass(slots=True)
class TrainingLoop:
    """Trains tasks, one after the other, with one copy of the parameters.

    Attributes:
        sync: gradients are computed under step permits.
        overlap: the next minibatch is computed while a gradient is being pushed.
        local_steps: minibatches that are applied here before they are pushed together.
        minibatch_size: of the job.
        prefetch_lead_s: how much work is left when the next lease is asked for.
        tables: embedding tables of the model, if it has any.
        step_s: how long the last step took; None before the first one.
    """

    replica: ParameterReplica
    trainer: Trainer
    state: SharedState
    metrics: WorkerMetrics
    zoo: Path
    sync: bool
    overlap: bool
    local_steps: int
    minibatch_size: int
    prefetch_lead_s: float
    tables: EmbeddingTables | None = None
    step_s: float | None = None
    _exchange_call: BackgroundCall[Reply] = field(
        default_factory=lambda: BackgroundCall("exchange")
    )

    def run(self, assignment: Assignment, prefetcher: LeasePrefetcher) -> TrainingResult:
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
        task = _TrainingTask(
            assignment,
            PushPipeline(
                first,
                sync=self.sync,
                overlap=self.overlap and not self.sync and self.local_steps == 1,
                local_steps=1 if self.sync else self.local_steps,
            ),
            SlidingWindow(assignment.batches, first),
            wanted={},
            examples=first * self.minibatch_size,
            answered=time.perf_counter(),
        )
        expected = prefetch_policy.expected_minibatches(
            lease.records.stop - lease.records.start, self.minibatch_size
        )
        try:
            while True:
                match task.pushes.next_action():
                    case push_pipeline.Compute(index, fetch):
                        if prefetch_policy.is_due(
                            done=index,
                            expected=expected,
                            step_s=self.step_s,
                            lead_s=self.prefetch_lead_s,
                        ):
                            prefetcher.request()
                        self._compute(task, index, fetch)
                    case push_pipeline.Push(index, count):
                        self._push(task, index, count)
                    case push_pipeline.AwaitReply(index, count):
                        self._settle(task, index, count)
                    case push_pipeline.Finish(minibatches):
                        return TrainingResult(minibatches, task.examples)
        finally:
            # Whatever ended the task: nothing is on its way any more when the next one begins. Who
            # leaves waits a little, so that what was computed counts; if it comes too late,
            # the lease has been handed back and the master refuses it.
            self._exchange_call.discard(lambda s: not self.state.leaving or s < _LAST_ANSWER_S)

    def _compute(self, task: _TrainingTask, index: int, fetch: Fetch) -> None:
        """Compute the gradient of a minibatch, or see that the task ends before it."""
        if task.pushes.unpushed and self.state.leaving:
            task.pushes.flush()  # what local steps have done counts; only then leave
            return
        batch = self._read(task, index)
        if batch is None:
            task.pushes.set_end(index)
            return
        wanted = self._wanted(task, index)
        if not self._exchange_call.is_pending:
            self._fetch(task.assignment, fetch, wanted)
        elif not self.replica.has_rows(wanted):
            task.pushes.await_rows()
            return
        self._check(task.assignment)
        ahead = None
        if (
            task.pushes.overlap_is_on
            and not self._exchange_call.is_pending
            and self.tables is not None
        ):
            # The push of this step will bring rows of the next minibatch but one.
            ahead = self._wanted(task, index + 1)
            if ahead is not None:
                self._exchange_call.start(self.replica.ask(ahead))
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
        task.pushes.on_computed()
        if ahead is not None:
            self.replica.take(self._exchange_call.result(), ahead)

    def _move(self, task: _TrainingTask, index: int, batch: Batch) -> None:
        """One local step."""
        if not task.pushes.unpushed:
            task.base = self.replica.diverge()
            self.trainer.begin_local(task.base)
            task.loss = 0.0
        with self._explained(task.assignment.lease, index, batch):
            loss = self.trainer.move(batch)
        if not math.isfinite(loss):
            lease, version = task.assignment.lease, task.base
            raise task_errors.not_finite(lease, index, version, f"the loss is {loss}")
        task.loss += loss * batch.size

    def _push(self, task: _TrainingTask, index: int, count: int) -> None:
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
            task.pushes.set_end(index + count)
        if self.local_steps == 1 or not self.state.leaving:
            self._check(task.assignment)
        header = parameters_pb2.PushHeader(
            claim=parameters_pb2.PushClaim(
                lease=task.assignment.ref,
                minibatch=index,
                minibatches=count,
                records=records,
                base_version=task.base,
            ),
            step=parameters_pb2.StepReport(compute_s=task.compute_s),
        )
        if push_pipeline.requests_values(last=task.pushes.is_last(index + count - 1)):
            header.next.SetInParent()
        task.compute_s = 0.0
        task.pushes.on_pushed()
        call = isinstance(task.pushes.next_action(), push_pipeline.Compute)
        # While the gradient is pushed the next minibatch is computed on rows that are there.
        task.following = self._wanted(task, index + (2 if call else 1))
        started = time.perf_counter()
        wanted = self._wanted(task, index)
        push = self.replica.push(header, step, wanted, task.following)
        if call:
            self._exchange_call.start(push)
        else:
            self._exchange_call.defer(push)
        task.header = header
        task.exchanging_s += time.perf_counter() - started

    def _settle(self, task: _TrainingTask, index: int, count: int) -> None:
        """Wait for the answer to a push, and do what it says."""
        started = time.perf_counter()
        self.state.phase = task_pb2.EXCHANGING
        reply = self._exchange_call.result()
        assert isinstance(reply, parameters_pb2.PushReply), "a push was under way"
        assert task.header is not None, "there was a push"
        then = task.pushes.on_reply(
            _OUTCOMES[reply.outcome],
            values_came=reply.nbytes > 0,
            permit_granted=reply.permit_granted,
        )
        self.replica.take(reply, task.following)
        now = time.perf_counter()
        self.metrics.exchange_s.observe(task.exchanging_s + now - started)
        self.metrics.pushed(reply.outcome)
        task.exchanging_s = 0.0
        match then:
            case AfterPush.ADVANCE:
                self.metrics.steps.inc(count)
                task.examples += task.header.claim.records
                task.batches.drop_before(index + count)
                for at in range(index, index + count):
                    task.wanted.pop(at, None)
                self.step_s, task.answered = (now - task.answered) / count, now
            case AfterPush.RECOMPUTE:
                task.step, task.compute_s = None, 0.0
                self.replica.drop_rows()
            case AfterPush.DROP_TASK:
                raise TaskLostError
            case AfterPush.RETURN_TASK:
                raise OutOfOrderError
            case AfterPush.FAIL_TASK:
                loss, base = task.header.step.loss, task.header.claim.base_version
                problem = f"the gradient holds an infinity or not a number (loss {loss:g})"
                raise task_errors.not_finite(task.assignment.lease, index, base, problem)

    def _read(self, task: _TrainingTask, index: int) -> Batch | None:
        started, read = time.perf_counter(), task.batches.read
        batch = task.batches.get(index)
        if task.batches.read > read:
            self.metrics.input_s.observe(time.perf_counter() - started)
        return batch

    def _fetch(self, assignment: Assignment, fetch: Fetch, wanted: RowRequest | None) -> None:
        match fetch:
            case Fetch.NOTHING if self.replica.has_rows(wanted):
                pass
            case Fetch.NOTHING | Fetch.PARAMETERS:
                self.state.phase = task_pb2.EXCHANGING
                while not self.replica.refresh(wanted):
                    self._check(assignment)
                    self.state.sleep(0.05)  # another worker is about to send the initial values
            case Fetch.PERMIT:
                self.state.phase = task_pb2.WAITING
                while not self.replica.acquire_permit(assignment.ref, wanted):
                    self._check(assignment)

    def _check(self, assignment: Assignment) -> None:
        self.state.check()
        if self.state.replaced:
            raise MasterReplacedError("said a heartbeat")
        if self.state.is_lost(assignment.ref):
            raise TaskLostError

    def _wanted(self, task: _TrainingTask, index: int) -> RowRequest | None:
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
