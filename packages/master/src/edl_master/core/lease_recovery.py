"""Takes leases back, and decides what happens to tasks that failed."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import (
    CloseTask,
    CountApplied,
    LogEvent,
    Refused,
    RevokeLease,
    Severity,
)
from edl_master.core.events import AppliedCounted, TaskFailed
from edl_master.core.failure import Failure
from edl_master.core.failure_policy import (
    DEATHS_PER_FAILURE,
    CrashLoopDetector,
    DeadLetterTask,
    ExitKind,
    FailJob,
    RetryTask,
    after_task_failure,
    cannot_start,
    settings_of,
)
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.instance_control import InstanceEnd
from edl_master.core.leases import Lease
from edl_master.core.tasks import OpenTask
from edl_master.core.worker import Worker


class LeaseRecovery:
    """Ends leases whose holders failed, left or fell silent; their tasks are leased again."""

    def __init__(self, components: JobComponents) -> None:
        self._settings = components.settings
        self._ledger = components.ledger
        self._workers = components.workers
        self._progress = components.progress
        self._outcome = components.outcome
        self._emit = components.emit
        self._replication = components.replication
        self._crash_loop = CrashLoopDetector(components.settings)
        # Training tasks that failed for good, until what the model has of them is counted: the
        # failure, why it is final, and the facts of the event.
        self._dead: dict[TaskKey, tuple[Failure, str, dict[str, str]]] = {}

    def record_progress(self) -> None:
        """Record progress of the job: earlier crashes are no crash loop."""
        self._crash_loop.progress()

    def handle_task_failure(self, event: TaskFailed, now: float) -> None:
        """Take the task back, and decide whether it is tried again."""
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is None:
            self._emit(Refused(f"the lease on {event.lease.task} is not current"))
            return
        self.take_back(lease, redo=True, now=now)
        self._judge(lease.task, event.worker, event.failure, event.permanent, now)

    def take_back_expired(self, now: float) -> None:
        """Take back the leases that were not renewed in time."""
        expired = self._ledger.leases.find_expired(now)
        begun = [self._ledger.leases.is_begun(lease) for lease in expired]
        for lease, redo in zip(expired, begun, strict=True):
            place = self._ledger.place(lease.task)
            line = f"Worker {lease.worker} did not renew its lease on {place} in time."
            self._emit(LogEvent("LeaseExpired", line, Severity.WARNING))
            self.take_back(lease, redo=redo, now=now)

    def handle_replaced_instance(self, worker: Worker, now: float) -> None:
        """Take all leases back: the instance that registered holds none."""
        for place, lease in enumerate(self._ledger.leases.of(worker.id)):
            self.take_back(lease, redo=place == 0, now=now)
        self._replication.lose(worker.id)

    def handle_missed_heartbeats(self, worker: Worker, now: float) -> None:
        """Take back the leases of an instance that has fallen silent."""
        silence = InstanceEnd(ExitKind.KILLED, "its heartbeats stopped", worker.productive, "")
        self.take_back_all(worker, silence, now)

    def handle_end(self, worker: Worker, ended: InstanceEnd, now: float) -> None:
        """Take back the leases of an instance that is gone, and detect a crash loop."""
        held = self._ledger.leases.of(worker.id)
        exporting = bool(held) and held[0].task.key.type is TaskType.EXPORT
        self.take_back_all(worker, ended, now)
        if ended.permanent and not any(each.alive for each in self._workers):
            self._outcome.fail(cannot_start(worker.name, ended.how))
        # Crashes in an export count as the task's only: later attempts write less.
        if not self._outcome.decided and not ended.productive and not exporting:
            verdict = self._crash_loop.count(ended.kind, str(worker), ended.how, ended.log_tail)
            if verdict is not None:
                self._outcome.fail(verdict.failure)

    def take_back_all(self, worker: Worker, ended: InstanceEnd, now: float) -> None:
        """Take all leases back. Work had begun on the first one only: its task may be the cause."""
        for place, lease in enumerate(self._ledger.leases.of(worker.id)):
            self.take_back(lease, redo=place == 0, now=now)
            if place == 0:
                self._count_end(lease.task, worker, ended, now)
        self._replication.lose(worker.id)

    def _count_end(self, task: OpenTask, worker: Worker, ended: InstanceEnd, now: float) -> None:
        """Count a crash as a failure of the task, a kill only if kills repeat, no preemption."""
        if ended.kind in (ExitKind.PREEMPTED, ExitKind.LEFT):
            return
        task.deaths += 1
        task.crashes += ended.kind is ExitKind.CRASHED
        if ended.kind is ExitKind.CRASHED or task.deaths > DEATHS_PER_FAILURE:
            task.deaths = 0
            what = f"{worker.name} ended while it worked on this task: {ended.how}."
            remedy = "Read the end of its log below; look at these records and the model file."
            failure = Failure("WORKER_CRASH_LOOP", what, remedy=remedy, detail=ended.log_tail)
            self._judge(task, worker.id, failure, permanent=False, now=now)

    def take_back(self, lease: Lease, *, redo: bool, now: float) -> None:
        """End a lease; ``redo``: its holder may have computed something that is done again."""
        if redo and self._ledger.leases.is_begun(lease):
            in_vain_s = now - self._busy_since(lease.worker)
            self._progress.goodput.reclassify(TimeCategory.REDONE, in_vain_s)
        self._ledger.take_back(lease, redo=redo)
        if lease.task.key.type is TaskType.TRAINING:
            self._emit(RevokeLease(lease.task.key, lease.token))

    def _judge(
        self, task: OpenTask, worker_id: WorkerId, failure: Failure, permanent: bool, now: float
    ) -> None:
        """Decide what happens to a task that failed and that no worker holds."""
        if self._outcome.decided:
            return
        task.failures += 1
        place = self._ledger.place(task)
        type_ = task.key.type
        facts = {"task": str(task.key), "worker": str(worker_id), "code": failure.code}
        settings = settings_of(self._settings, type_, task.crashes)
        match after_task_failure(settings, type_, task.failures, failure, permanent, place):
            case RetryTask(reason):
                task.not_for = worker_id
                task.not_for_until = now + self._settings.timings.retry_elsewhere_s
                line = f"Trying {place} again ({reason}): {failure.what}"
                self._emit(LogEvent("TaskRetried", line, Severity.WARNING, facts))
            case DeadLetterTask(reason) if type_ is TaskType.TRAINING:
                # A report may still be on its way. No worker can push for the task any more.
                self._dead[task.key] = (failure, reason, facts)
                self._emit(CountApplied(task.key))
            case DeadLetterTask(reason):
                self._set_aside(task, failure, reason, facts)
            case FailJob(final, reason):
                self._ledger.add_dead_letter(task, failure)
                # The job fails with the reason, which is then not told twice.
                line = f"Cannot continue without {place} ({reason})"
                self._emit(LogEvent("TaskDeadLettered", line, Severity.ERROR, facts))
                self._outcome.fail(final)

    def handle_count(self, event: AppliedCounted) -> None:
        """Set a failed training task aside, now that its last minibatch is known."""
        failure, reason, facts = self._dead.pop(event.task)
        task = self._ledger.find(event.task)
        assert task is not None, "a task is counted before it is closed"
        if not self._outcome.decided:
            task.take_over(event.count)
            self._set_aside(task, failure, reason, facts)
            self._emit(CloseTask(task.key))

    def _set_aside(
        self, task: OpenTask, failure: Failure, reason: str, facts: dict[str, str]
    ) -> None:
        """Make a task a dead letter; the job continues without it."""
        kept = ""
        if task.records_applied:
            kept = f"; {task.records_applied} of its {task.length} records are in the model"
        line = f"Continuing without {self._ledger.place(task)} ({reason}{kept}): {failure.what}"
        self._emit(LogEvent("TaskDeadLettered", line, Severity.ERROR, facts))
        self._ledger.add_dead_letter(task, failure)
        self._ledger.close(task, dead=True)
        self._crash_loop.progress()  # the cause of the crashes is gone

    def handle_wrong_prediction_count(self, lease: Lease, predictions: int, now: float) -> None:
        """Fail a task that does not have one prediction for each record."""
        what = f"{predictions} predictions were made for {lease.task.length} records."
        remedy = "In prediction, the dataset function must keep every record exactly once."
        failure = Failure("MODEL_CONTRACT", what, remedy=remedy)
        self.take_back(lease, redo=True, now=now)
        self._judge(lease.task, lease.worker, failure, permanent=True, now=now)

    def _busy_since(self, worker_id: WorkerId) -> float:
        worker = self._workers.find(worker_id)
        assert worker is not None, "only a worker holds a lease"
        return worker.watch.since
