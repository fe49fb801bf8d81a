"""Answers the requests and reports of workers about tasks."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import (
    CloseTask,
    HeartbeatAnswer,
    LeaseGranted,
    LeaveJob,
    LogEvent,
    Refused,
    Severity,
    WaitForWork,
)
from edl_master.core.events import (
    CallbackReply,
    HeartbeatReceived,
    LeaseRequested,
    LeasesReturned,
    MinibatchApplied,
    TaskCompleted,
)
from edl_master.core.identifiers import HeldLease, TaskType, WorkerId, WorkerState
from edl_master.core.lease_recovery import LeaseRecovery
from edl_master.core.leases import Lease
from edl_master.core.metric_states import MetricStateMismatch
from edl_master.core.permutation import task_seed
from edl_master.core.stall_monitor import StallMonitor
from edl_master.core.tasks import OpenTask
from edl_master.core.worker import Worker
from edl_master.core.workflow import FINAL

_MAX_EXAMPLES_PER_RECORD = 1 << 20
"""The limit of what is counted, whatever a worker reports: a job's sum fits into 64 bits."""


class Dispatcher:
    """Answers workers from the ledger, and keeps the ledger in line with what they report."""

    def __init__(
        self, components: JobComponents, recovery: LeaseRecovery, stalls: StallMonitor
    ) -> None:
        self._recovery = recovery
        self._stalls = stalls
        self._reports = components.reports
        self._settings = components.settings
        self._ledger = components.ledger
        self._workers = components.workers
        self._workflow = components.workflow
        self._evaluations = components.evaluations
        self._callbacks = components.callbacks
        self._progress = components.progress
        self._outcome = components.outcome
        self._detector = components.stalls
        self._emit = components.emit
        self._replication = components.replication
        self._last_completed: dict[WorkerId, HeldLease] = {}

    # --- requests -------------------------------------------------------------------------

    def handle_lease_request(self, event: LeaseRequested, now: float) -> None:
        """Give the worker a task, or say that it has to wait or to leave."""
        worker = self._reports.find_sender(event.worker, event.instance, now)
        wait_s = self._settings.timings.wait_s
        if not isinstance(worker, Worker):
            self._emit(LeaveJob(worker))
            return
        if worker.state is not WorkerState.READY:
            self._emit(WaitForWork(wait_s, "this worker is not ready"))
            return
        if not self._replication.is_begun:
            self._emit(WaitForWork(wait_s, "the workers join the new master"))
            return
        if event.worker not in self._ledger.leases.holders:
            worker.watch.begin(now)
        alone = self._workers.is_alone(event.worker)
        trains = self._replication.is_settled
        lease = self._ledger.lease(event.worker, now, alone=alone, trains=trains)
        if lease is None:
            self._emit(WaitForWork(wait_s, self._why_wait()))
        else:
            self._emit(self._make_grant(lease))

    def _make_grant(self, lease: Lease) -> LeaseGranted:
        key = lease.task.key
        match key.type:
            case TaskType.EVALUATION | TaskType.EVALUATION_SUMMARY:
                frozen, version, states = self._evaluations.task_input()
            case TaskType.EXPORT:
                frozen, version, states = FINAL, self._workflow.final_version, ()
            case TaskType.TRAINING | TaskType.PREDICTION | TaskType.CALLBACKS:
                frozen, version, states = "", None, ()
        is_call = key.type is TaskType.CALLBACKS
        return LeaseGranted(
            worker=lease.worker,
            task=key,
            token=lease.token,
            records=lease.task.records,
            seed=task_seed(self._settings.seed, key.round, key.number),
            frozen=frozen,
            version=version,
            metric_states=states,
            callbacks=self._callbacks.next_call(self._evaluations.metrics) if is_call else None,
            learning_rate=self._callbacks.learning_rate,
            crashes=lease.task.crashes,
            shuffled=key.type is TaskType.TRAINING and self._settings.mixing is not None,
        )

    def _why_wait(self) -> str:
        if len(self._ledger.leases):
            return "other workers hold the last tasks"
        return "the next tasks are being prepared"

    def heartbeat(self, event: HeartbeatReceived, now: float) -> None:
        """Renew the leases that the worker names, and report those that it has lost."""
        worker = self._reports.find_sender(event.worker, event.instance, now)
        if isinstance(worker, Worker):
            worker.phase = event.phase
            self._stalls.take_stacks(worker, event.stacks)
        lost = []
        for held in event.leases:
            lease = self._ledger.leases.current(event.worker, held)
            if lease is None:
                lost.append(held)
            else:
                self._ledger.leases.renew(lease, now)
        if isinstance(worker, Worker):
            asks = self._stalls.asks_for_stacks(worker)
            self._emit(HeartbeatAnswer(tuple(lost), send_stacks=asks))
        else:
            self._emit(HeartbeatAnswer(tuple(lost), worker))

    # --- work done -------------------------------------------------------------------------

    def handle_applied_minibatch(self, event: MinibatchApplied, now: float) -> None:
        """Count a minibatch that is in the model, even if its worker has lost the lease since."""
        before = self._progress.version
        self._progress.step(event.version, event.loss, event.staleness, event.minibatches)
        task = self._ledger.find(event.lease.task)
        # A worker may say any number: what the job counts of a task is no more than it has.
        weight = event.records if task is None else min(event.records, task.length)
        done = weight if task is None else min(weight, task.length - task.records_applied)
        self._progress.records(done, now)
        self._callbacks.record_applied(event.loss, weight)
        self._recovery.record_progress()
        if task is not None:
            self._ledger.advance(task, event.records, event.minibatches)
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is not None:
            self._ledger.leases.renew(lease, now)
            worker = self._workers.work_done(event.worker, event.records, event.minibatches, now)
            self._detector.record_step(worker.watch, now)
        if (point := self._progress.loss_point(now)) is not None:
            self._emit(point)
        if not self._outcome.decided:
            self._workflow.on_update(before, self._progress.version)

    def record_late_minibatch(self, event: MinibatchApplied) -> None:
        """Count a minibatch that was applied as the job ended: the last checkpoint has it."""
        self._progress.step(event.version, event.loss, event.staleness, event.minibatches)
        task = self._ledger.find(event.lease.task)
        if task is not None:
            self._ledger.advance(task, event.records, event.minibatches)

    def may_complete(self, worker: WorkerId, held: HeldLease) -> bool:
        """Return whether a worker has a lease, or has completed its task: an answer may be lost."""
        is_current = self._ledger.leases.current(worker, held) is not None
        return is_current or self._last_completed.get(worker) == held

    def handle_completion(self, event: TaskCompleted, now: float) -> None:
        """Close the task if the lease is current and the counts agree."""
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is None:
            repeated = self._last_completed.get(event.worker) == event.lease
            if not repeated:
                self._emit(Refused(f"the lease on {event.lease.task} is not current"))
            return
        task = lease.task
        if task.key.type is TaskType.TRAINING:
            counted = self._replication.await_counts(event)
            if counted is None:
                return
            event = counted
        if not self._accepts(event, lease, now):
            return
        self._close(task, event.examples)
        self._last_completed[event.worker] = event.lease
        self._recovery.record_progress()
        training = task.key.type is TaskType.TRAINING  # its records count minibatch by minibatch
        worker = self._workers.work_done(event.worker, 0 if training else task.length, 0, now)
        worker.watch.begin(now)
        if task.key.type is self._workflow.main and not training:
            self._progress.records(task.length, now)

    def _close(self, task: OpenTask, examples: int) -> None:
        """Close a task that is done; report once if its numbers of records and examples differ."""
        type_ = task.key.type
        counted = type_ is self._workflow.main and type_ is not TaskType.PREDICTION
        if counted and examples != task.length:
            before, records = self._ledger.examples(type_)
            if before == records:
                self._examples_differ(task, examples)
        most = task.length * _MAX_EXAMPLES_PER_RECORD
        self._ledger.close(task, examples=min(examples, most))

    def _examples_differ(self, task: OpenTask, examples: int) -> None:
        made = "drops" if examples < task.length else "multiplies"
        line = (
            f"The input function {made} records: {task.length} became {examples} examples "
            f"({self._ledger.place(task)}). Records count as done; the status shows both numbers."
        )
        facts = {"records": str(task.length), "examples": str(examples)}
        self._emit(LogEvent("ExamplesDiffer", line, Severity.WARNING, facts))

    def _accepts(self, event: TaskCompleted, lease: Lease, now: float) -> bool:
        """Take the result of a task; False if its counts show that it is not complete."""
        task = lease.task
        match task.key.type:
            case TaskType.TRAINING:
                if event.applied != event.minibatches:
                    counted = f"{event.applied} of {event.minibatches} minibatches are applied"
                    self._emit(Refused(f"task {task.key} is not complete: {counted}"))
                    return False
                self._emit(CloseTask(task.key))
            case TaskType.EVALUATION:
                try:
                    self._evaluations.collect(event.metric_states)
                except MetricStateMismatch as mismatch:
                    self._outcome.fail(mismatch.failure)
            case TaskType.EVALUATION_SUMMARY:
                self._evaluations.finish(event.metrics)
            case TaskType.PREDICTION:
                if event.records != task.length:
                    self._emit(Refused(f"task {task.key} has {event.records} predictions"))
                    self._recovery.handle_wrong_prediction_count(lease, event.records, now)
                    return False
                self._progress.predictions += event.records
            case TaskType.CALLBACKS:
                self._callbacks.apply_reply(event.callbacks or CallbackReply(b""))
                self._outcome.warn(event.warnings)
            case TaskType.EXPORT:
                # The workflow makes the written files the output later.
                self._outcome.warn(event.warnings)
        return True

    def handle_returned_leases(self, event: LeasesReturned, now: float) -> None:
        """Take back the leases that the worker returns; ``leaving`` announces its end."""
        worker = self._reports.find_sender(event.worker, event.instance, now)
        # Known before anything is taken back: then the next lease would seem to be begun.
        begun = next(iter(self._ledger.leases.of(event.worker)), None)
        for held in event.leases:
            lease = self._ledger.leases.current(event.worker, held)
            if lease is not None:
                redo = lease is begun and held.task.type is not TaskType.TRAINING
                self._recovery.take_back(lease, redo=redo, now=now)
        if event.leaving and isinstance(worker, Worker):
            self._reports.handle_leaving(worker, event.reason, now)
        sender = self._workers.find(event.worker)
        if event.leaving and sender and event.instance in (None, sender.instance):
            self._replication.leave(event.worker)  # also if this master has told it to leave
