"""The training loop of one task: each minibatch gets into the model exactly once.

A loss or gradient that is not finite fails the task here.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from edl_worker.concurrency.background_call import BackgroundCall
from edl_worker.core import push_pipeline
from edl_worker.core.batch import Batch
from edl_worker.core.exchange import ParameterReply, PushReply, PushRequest
from edl_worker.core.job import TrainingSettings
from edl_worker.core.push_pipeline import AfterPush, AwaitReply, Compute, Fetch, FinishTask, Push
from edl_worker.core.row_engine import RowEngine, RowRequest
from edl_worker.core.tasks import Lease, OutOfOrderError, TaskLostError, TaskResult, WorkerPhase
from edl_worker.tasks import task_errors
from edl_worker.tasks.batch_loop import BatchLoop
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.lookahead import SlidingWindow
from edl_worker.training.replica import ParameterReplica
from edl_worker.training.trainer import Trainer

_LAST_REPLY_S = 1.0
"""How long a worker that leaves waits for the reply to its last push."""


@dataclass(slots=True)
class _TrainingTask:
    """A task that is being trained.

    Attributes:
        pushes: decides what comes next.
        batches: the task's minibatches, from the first that is not in the model on.
        wanted: rows of embedding tables that minibatches need, by index, as far as known.
        replied: when the last reply arrived.
        base: version of the values from which the present push is computed.
        compute_s: time spent computing what is not pushed yet.
        request: the last push.
        following: rows that its reply brings.
        exchange_s: time that computing has waited for exchanges since the last reply.
    """

    lease: Lease
    pushes: push_pipeline.PushPipeline
    batches: SlidingWindow[Batch]
    wanted: dict[int, RowRequest]
    replied: float
    base: int = 0
    compute_s: float = 0.0
    request: PushRequest | None = None
    following: RowRequest | None = None
    exchange_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class TrainingLoop(BatchLoop):
    """The loop that trains tasks with one copy of the parameters, which the master changes.

    Attributes:
        tables: embedding tables of the model, if it has any.
    """

    options: TrainingSettings
    replica: ParameterReplica
    trainer: Trainer
    tables: RowEngine | None = None
    _exchange: BackgroundCall[ParameterReply] = field(
        default_factory=lambda: BackgroundCall("exchange")
    )

    def run(self, assignment: Assignment, prefetcher: LeasePrefetcher) -> TaskResult:
        """Train one task from where its last holder left it.

        Raises:
            TaskLostError: another worker has it now.
            OutOfOrderError: it has to be handed back.
            EdlError: it failed.
            LeavingError: the worker has to leave; the lease stays held.
            MasterReplacedError: the results are for a former incarnation of the master.
        """
        lease = assignment.lease
        assert assignment.batches is not None, "a training task has records"
        first = lease.skip_minibatches
        task = _TrainingTask(
            lease,
            self._new_pipeline(first),
            SlidingWindow(assignment.batches, first),
            wanted={},
            replied=time.perf_counter(),
        )
        try:
            while True:
                match task.pushes.next_action():
                    case Compute(index, fetch):
                        self._prefetch(prefetcher, lease, index)
                        self._on_compute(task, index, fetch)
                    case Push(index, count):
                        self._on_push(task, index, count)
                    case AwaitReply(index, count):
                        self._on_await_reply(task, index, count)
                    case FinishTask(minibatches):
                        return TaskResult(records=lease.record_count, minibatches=minibatches)
        finally:
            # Whatever ended the task, no exchange is in flight when the next task begins. A worker
            # that leaves waits a little, so that its last gradient counts. If the push arrives too
            # late, the lease has been handed back and the master refuses it.
            self._exchange.discard(lambda s: not self.state.leaving or s < _LAST_REPLY_S)

    def pull(self, lease: Lease, wanted: RowRequest | None = None) -> None:
        """Make the values those of the newest version, and fetch the rows of a minibatch."""
        self.state.phase = WorkerPhase.EXCHANGING
        while not self.replica.pull(wanted).initialized:
            self.state.check_lease(lease.ref)
            self.state.sleep(0.05)  # another worker is about to send the initial values

    def _new_pipeline(self, first: int) -> push_pipeline.PushPipeline:
        options = self.options
        return push_pipeline.PushPipeline(
            first,
            sync=options.sync,
            overlap=options.overlap,
            local_steps=options.local_steps,
        )

    # --- actions ---------------------------------------------------------------------------

    def _on_compute(self, task: _TrainingTask, index: int, fetch: Fetch) -> None:
        """Compute the gradient of a minibatch, or find that the task ends before it."""
        if task.pushes.unpushed and self.state.leaving:
            task.pushes.flush()  # the finished local steps count; the worker leaves after that
            return
        batch = self._read(task.batches, index)
        if batch is None:
            task.pushes.set_end(index)
            return
        wanted = self._find_rows(task, index)
        if not self._exchange.is_pending:
            self._fetch(task.lease, fetch, wanted)
        elif not self.replica.has_rows(wanted):
            task.pushes.await_rows()
            return
        self.state.check_lease(task.lease.ref)
        self._begin_step()
        ahead = self._start_fetching_ahead(task, index + 1)
        started = time.perf_counter()
        if not task.pushes.unpushed:
            task.base = self.replica.begin_push(changes_values=self.trainer.changes_values)
            self.trainer.begin_push(task.base, task.lease.learning_rate)
        with self._explain_errors(task.lease, index, batch):
            loss = self.trainer.add(batch, wanted, self.replica.rows(wanted))
        if not math.isfinite(loss):
            task.pushes.flush()  # unless this minibatch is computed again, its push fails the task
        seconds = time.perf_counter() - started
        task.compute_s += seconds
        self.metrics.compute_s.observe(seconds)
        task.pushes.on_computed()
        if ahead is not None:
            self.replica.take(self._exchange.result(), ahead)
        elif self._exchange.is_pending:
            # The push of this minibatch asks for them: they are ready when the one in flight ends.
            self._find_rows(task, index + 2)

    def _start_fetching_ahead(self, task: _TrainingTask, index: int) -> RowRequest | None:
        """Fetch the rows of the next minibatch while this one is computed.

        Only the first step with overlap needs this: each push brings the rows of the next
        minibatch but one.
        """
        if not task.pushes.overlap_is_on or self._exchange.is_pending or self.tables is None:
            return None
        ahead = self._find_rows(task, index)
        if ahead is not None:
            self._exchange.start(self.replica.prepare_pull(ahead))
        return ahead

    def _on_push(self, task: _TrainingTask, index: int, count: int) -> None:
        """Start to push the last gradient; without overlap ``_on_await_reply`` makes the call."""
        batches = [task.batches.get(at) for at in range(index, index + count)]
        records = sum(batch.size for batch in batches if batch is not None)
        step = self.trainer.take()
        if not step.is_finite:
            last = index + count - 1
            raise task_errors.not_finite_error(
                task.lease, last, task.base, f"the loss is {step.loss}", batches
            )
        if self._read(task.batches, index + count) is None:
            task.pushes.set_end(index + count)
        if not (task.pushes.collects and self.state.leaving):
            self.state.check_lease(task.lease.ref)
        is_last = task.pushes.is_last(index + count - 1)
        task.request = PushRequest(
            lease=task.lease.ref,
            minibatch=index,
            minibatches=count,
            records=records,
            base_version=task.base,
            compute_s=task.compute_s,
            wants_values=push_pipeline.requests_values(last=is_last),
            loss=step.loss,
        )
        task.compute_s = 0.0
        task.pushes.on_pushed()
        overlaps = isinstance(task.pushes.next_action(), Compute)
        # With overlap the next minibatch is computed on rows that are here already.
        task.following = self._find_rows(task, index + (2 if overlaps else 1))
        started = time.perf_counter()
        wanted = self._find_rows(task, index)
        push = self.replica.prepare_push(task.request, step, wanted, task.following)
        if overlaps:
            self._exchange.start(push)
        else:
            self._exchange.defer(push)
        task.exchange_s += time.perf_counter() - started

    def _on_await_reply(self, task: _TrainingTask, index: int, count: int) -> None:
        """Wait for the reply to a push, and act on it."""
        started = time.perf_counter()
        self.state.phase = WorkerPhase.EXCHANGING
        reply = self._exchange.result()
        assert isinstance(reply, PushReply), "a push was in flight"
        assert task.request is not None, "there was a push"
        then = task.pushes.on_reply(
            reply.outcome, values_came=reply.nbytes > 0, permit_granted=reply.permit_granted
        )
        self.replica.take(reply, task.following)
        now = time.perf_counter()
        self.metrics.exchange_s.observe(task.exchange_s + now - started)
        self.metrics.count_push(reply.outcome)
        task.exchange_s = 0.0
        match then:
            case AfterPush.ADVANCE:
                self.metrics.steps.inc(count)
                task.batches.drop_before(index + count)
                for at in range(index, index + count):
                    task.wanted.pop(at, None)
                self.step_s, task.replied = (now - task.replied) / count, now
            case AfterPush.RECOMPUTE:
                task.compute_s = 0.0
                self.replica.drop_rows()
            case AfterPush.DROP_TASK:
                raise TaskLostError
            case AfterPush.RETURN_TASK:
                raise OutOfOrderError
            case AfterPush.FAIL_TASK:
                raise task_errors.not_finite_error(
                    task.lease,
                    index,
                    task.request.base_version,
                    f"the gradient is not finite (loss {task.request.loss:g})",
                    [task.batches.get(at) for at in range(index, index + count)],
                )

    # --- what actions need -----------------------------------------------------------------

    def _fetch(self, lease: Lease, fetch: Fetch, wanted: RowRequest | None) -> None:
        match fetch:
            case Fetch.NOTHING if self.replica.has_rows(wanted):
                pass
            case Fetch.NOTHING | Fetch.PARAMETERS:
                self.pull(lease, wanted)
            case Fetch.PERMIT:
                self.state.phase = WorkerPhase.WAITING
                while not self.replica.pull(wanted, permit_for=lease.ref).permit_granted:
                    self.state.check_lease(lease.ref)

    def _find_rows(self, task: _TrainingTask, index: int) -> RowRequest | None:
        """Return the rows of embedding tables that a minibatch needs; they are determined once."""
        if self.tables is None:
            return None
        if index not in task.wanted:
            batch = self._read(task.batches, index)
            if batch is None:
                return None
            with self._explain_errors(task.lease, index, batch):
                task.wanted[index] = self.tables.find_rows(batch, training=True)
        return task.wanted[index]
