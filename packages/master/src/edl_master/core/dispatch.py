"""Dispatch: what workers say about tasks, and what they are told to do next."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import (
    CloseTask,
    HeartbeatAnswer,
    LeaseGranted,
    LeaveJob,
    Record,
    Refused,
    RevokeLease,
    Severity,
    WaitForWork,
)
from edl_master.core.evaluation import StatesDisagree
from edl_master.core.events import (
    HeartbeatReceived,
    HeldLease,
    LeaseRequested,
    LeasesReturned,
    MinibatchApplied,
    TaskCompleted,
    TaskFailed,
)
from edl_master.core.failure import Failure
from edl_master.core.failure_policy import (
    DEATHS_PER_FAILURE,
    CrashLoopDetector,
    DeadLetterTask,
    ExitKind,
    FailJob,
    RetryTask,
    after_task_failure,
)
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import TaskType, WorkerId, WorkerState
from edl_master.core.leases import Lease
from edl_master.core.permutation import task_seed
from edl_master.core.stall_detector import Pace, StallVerdict
from edl_master.core.tasks import OpenTask
from edl_master.core.worker import LOADING, WAITING, Member
from edl_master.core.worker_pool import InstanceEnd
from edl_master.core.workflow import FINAL


class Dispatch:
    """Answers workers out of the ledger, and keeps the ledger true to what they report."""

    def __init__(self, components: JobComponents) -> None:
        self._settings = components.settings
        self._ledger = components.ledger
        self._members = components.members
        self._workflow = components.workflow
        self._evaluations = components.evaluations
        self._progress = components.progress
        self._outcome = components.outcome
        self._hanging = components.hanging
        self._emit = components.emit
        self._streak = CrashLoopDetector(components.settings)
        self._last_completed: dict[WorkerId, HeldLease] = {}

    # --- what workers ask --------------------------------------------------------------------

    def lease_requested(self, event: LeaseRequested, now: float) -> None:
        """Give the worker a task, or say that it has to wait or to leave."""
        member = self._members.hear(event.worker, event.body, now)
        wait_s = self._settings.timings.wait_s
        if not isinstance(member, Member):
            self._emit(LeaveJob(member))
            return
        if member.state is not WorkerState.READY:
            self._emit(WaitForWork(wait_s, "this worker is not ready"))
            return
        if event.worker not in self._ledger.leases.holders:
            member.watch.begin(now)
        alone = self._members.is_alone(event.worker)
        lease = self._ledger.lease(event.worker, now, alone=alone)
        if lease is None:
            self._emit(WaitForWork(wait_s, self._why_wait()))
        else:
            self._emit(self._granted(lease))

    def _granted(self, lease: Lease) -> LeaseGranted:
        key = lease.task.key
        match key.type:
            case TaskType.EVALUATION | TaskType.EVALUATION_SUMMARY:
                frozen, version, states = self._evaluations.brief()
            case TaskType.EXPORT:
                frozen, version, states = FINAL, self._workflow.final_version, ()
            case TaskType.TRAINING | TaskType.PREDICTION:
                frozen, version, states = "", None, ()
        return LeaseGranted(
            worker=lease.worker,
            task=key,
            token=lease.token,
            ttl_s=self._settings.timings.lease_ttl_s,
            records=lease.task.records,
            seed=task_seed(self._settings.seed, key.round, key.number),
            frozen=frozen,
            version=version,
            metric_states=states,
        )

    def _why_wait(self) -> str:
        if len(self._ledger.leases):
            return "other workers hold the last tasks"
        return "the next tasks are being prepared"

    def heartbeat(self, event: HeartbeatReceived, now: float) -> None:
        """Renew the leases that the worker names, and tell which it has lost."""
        member = self._members.hear(event.worker, event.body, now)
        if isinstance(member, Member):
            member.phase = event.phase
            if event.stacks and member.watch.asked_at is not None and not member.watch.stacks:
                self._take_stacks(member, event.stacks)
        lost = []
        for held in event.leases:
            lease = self._ledger.leases.current(event.worker, held)
            if lease is None:
                lost.append(held)
            else:
                self._ledger.leases.renew(lease, now)
        if isinstance(member, Member):
            watch = member.watch
            asks = watch.asked_at is not None and not watch.stacks
            self._emit(HeartbeatAnswer(tuple(lost), tell_stacks=asks))
        else:
            self._emit(HeartbeatAnswer(tuple(lost), member))

    def _take_stacks(self, member: Member, stacks: str) -> None:
        member.watch.stacks = stacks
        line = f"{member.name} told what its threads do."
        facts = {"worker": str(member.id), "stacks": stacks}
        self._emit(Record("WorkerStacks", line, Severity.WARNING, facts))

    def check_for_stalls(self, now: float) -> None:
        """Name workers that are heard but get nowhere; end those that had their time."""
        for member in list(self._members.loading()):
            self._look_at(member, None, now)
        holders = self._ledger.leases.holders
        for member in list(self._members.ready_ones()):
            if member.id not in holders:
                self._look_at(member, None, now)
                continue
            if member.phase == WAITING and member.watch.stepped:
                # For a step permit, so for somebody else, who is looked at as well. Before the
                # first step it may as well be the user's own code that builds the pipeline.
                member.watch.since = now
                continue
            self._look_at(member, self._ledger.leases.of(member.id)[0], now)

    def _look_at(self, member: Member, lease: Lease | None, now: float) -> None:
        """Judge a worker: at work on a task, before its first one, or between two."""
        facts, place, pace = {"worker": str(member.id)}, "loading the model file", Pace.LOADING
        if lease is None and member.state is WorkerState.READY and member.phase != LOADING:
            place, pace = "turning to its next task", Pace.ASKING
        elif lease is not None:
            facts["task"] = str(lease.task.key)
            place = self._ledger.place(lease.task)
            training = lease.task.key.type is TaskType.TRAINING
            pace = Pace.STEPS if training else Pace.WHOLE_TASK
        nowhere_s = now - member.watch.since
        match self._hanging.judge(member.watch, now, pace):
            case StallVerdict.NOTHING:
                pass
            case StallVerdict.ASK:
                line = f"{member.name} got nowhere for {nowhere_s:.0f} s in {place};"
                line += " asking for its stacks."
                self._emit(Record("WorkerSuspected", line, Severity.WARNING, facts))
            case StallVerdict.END:
                reason = f"it got nowhere for {nowhere_s:.0f} s in {place}"
                ended = self._members.end_hanging(member, reason, now)
                line = f"{member.name} is ended: {reason}."
                self._emit(Record("WorkerHung", line, Severity.ERROR, facts))
                self._take_back_all(member, ended, now)

    # --- what gets done --------------------------------------------------------------------

    def minibatch_applied(self, event: MinibatchApplied, now: float) -> None:
        """It is in the model, whoever holds the task by now: it counts."""
        before = self._progress.version
        self._progress.step(event.version, event.loss, event.staleness, event.minibatches)
        self._progress.records(event.records, now)
        self._streak.progress()
        task = self._ledger.find(event.lease.task)
        if task is not None:
            self._ledger.advance(task, event.minibatch, event.records, event.minibatches)
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is not None:
            self._ledger.leases.renew(lease, now)
            member = self._members.work_done(event.worker, event.records, event.minibatches, now)
            self._hanging.stepped(member.watch, now)
        if (point := self._progress.loss_point(now)) is not None:
            self._emit(point)
        if not self._outcome.decided:
            self._workflow.updated(before, self._progress.version)

    def task_completed(self, event: TaskCompleted, now: float) -> None:
        """Close the task if the lease is current and the counts agree."""
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is None:
            repeated = self._last_completed.get(event.worker) == event.lease
            if not repeated:
                self._emit(Refused(f"the lease on {event.lease.task} is not current"))
            return
        task = lease.task
        match task.key.type:
            case TaskType.TRAINING:
                if event.applied != event.minibatches:
                    counted = f"{event.applied} of {event.minibatches} minibatches are applied"
                    self._emit(Refused(f"task {task.key} is not complete: {counted}"))
                    return
                self._emit(CloseTask(task.key))
            case TaskType.EVALUATION:
                try:
                    self._evaluations.collect(event.metric_states)
                except StatesDisagree as disagreement:
                    self._outcome.fail(disagreement.failure)
            case TaskType.EVALUATION_SUMMARY:
                self._evaluations.conclude(event.metrics)
            case TaskType.PREDICTION:
                if event.records != task.length:
                    self._wrong_count(lease, event.records, now)
                    return
                self._progress.predictions += event.records
            case TaskType.EXPORT:
                pass  # what it has written becomes the output when the workflow asks for that
        self._ledger.close(task)
        self._last_completed[event.worker] = event.lease
        self._members.next_task_started(event.worker, now)
        self._streak.progress()
        if task.key.type is TaskType.TRAINING:
            self._members.work_done(event.worker, 0, 0, now)
        else:
            self._members.work_done(event.worker, task.length, 0, now)
            if task.key.type is self._workflow.main:
                self._progress.records(task.length, now)

    def _wrong_count(self, lease: Lease, predictions: int, now: float) -> None:
        what = f"{predictions} predictions were made for {lease.task.length} records."
        remedy = "In prediction the dataset function must keep every record, once."
        failure = Failure("MODEL_CONTRACT", what, remedy=remedy)
        self._take_back(lease, redo=True, now=now)
        self._judge(lease.task, lease.worker, failure, permanent=True, now=now)

    # --- what goes wrong -------------------------------------------------------------------

    def task_failed(self, event: TaskFailed, now: float) -> None:
        """Take the task back and decide what becomes of it."""
        lease = self._ledger.leases.current(event.worker, event.lease)
        if lease is None:
            self._emit(Refused(f"the lease on {event.lease.task} is not current"))
            return
        self._take_back(lease, redo=True, now=now)
        self._judge(lease.task, event.worker, event.failure, event.permanent, now)

    def leases_returned(self, event: LeasesReturned, now: float) -> None:
        """Take leases back that the worker has not used up, and perhaps see it leave."""
        member = self._members.hear(event.worker, event.body, now)
        for held in event.leases:
            lease = self._ledger.leases.current(event.worker, held)
            if lease is not None:
                working = lease is self._ledger.leases.of(event.worker)[0]
                redo = working and held.task.type is not TaskType.TRAINING
                self._take_back(lease, redo=redo, now=now)
        if event.leaving and isinstance(member, Member):
            self._members.announce_leaving(member, event.reason, now)

    def leases_expired(self, now: float) -> None:
        """Take leases back that nobody renewed."""
        for lease in self._ledger.leases.expired(now):
            place = self._ledger.place(lease.task)
            line = f"Worker {lease.worker} did not renew its lease on {place} in time."
            self._emit(Record("LeaseExpired", line, Severity.WARNING))
            self._take_back(lease, redo=True, now=now)

    def body_replaced(self, member: Member, now: float) -> None:
        """Take all leases back: the body that registered holds none."""
        for lease in self._ledger.leases.of(member.id):
            self._take_back(lease, redo=True, now=now)

    def body_lost(self, member: Member, now: float) -> None:
        """The body fell silent: take its leases back."""
        silence = InstanceEnd(ExitKind.KILLED, "it fell silent", member.productive, "")
        self._take_back_all(member, silence, now)

    def body_ended(self, member: Member, ended: InstanceEnd, now: float) -> None:
        """The body is gone: take its leases back, and look for a crash loop."""
        self._take_back_all(member, ended, now)
        if not self._outcome.decided and not ended.productive:
            verdict = self._streak.count(ended.kind, str(member), ended.how, ended.log_tail)
            if verdict is not None:
                self._outcome.fail(verdict.failure)

    def _take_back_all(self, member: Member, ended: InstanceEnd, now: float) -> None:
        """The first lease was in work, and its task may be to blame; the others only waited."""
        for place, lease in enumerate(self._ledger.leases.of(member.id)):
            self._take_back(lease, redo=place == 0, now=now)
            if place == 0:
                self._count_death(lease.task, member, ended, now)

    def _count_death(self, task: OpenTask, member: Member, ended: InstanceEnd, now: float) -> None:
        """A crash counts against the task; being killed only when it happens again and again."""
        task.deaths += 1
        if ended.kind is ExitKind.CRASHED or task.deaths > DEATHS_PER_FAILURE:
            task.deaths = 0
            what = f"{member.name} ended while it worked on this task: {ended.how}."
            remedy = "Read the end of its log below; look at these records and the model file."
            failure = Failure("WORKER_CRASH_LOOP", what, remedy=remedy, detail=ended.log_tail)
            self._judge(task, member.id, failure, permanent=False, now=now)

    def _take_back(self, lease: Lease, *, redo: bool, now: float) -> None:
        if redo and lease is self._ledger.leases.of(lease.worker)[0]:
            in_vain_s = now - self._members.busy_since(lease.worker)
            self._progress.goodput.take_off(TimeCategory.REDONE, in_vain_s)
        self._ledger.take_back(lease, redo=redo)
        if lease.task.key.type is TaskType.TRAINING:
            self._emit(RevokeLease(lease.task.key, lease.token))

    def _judge(
        self, task: OpenTask, worker: WorkerId, failure: Failure, permanent: bool, now: float
    ) -> None:
        """Decide what becomes of a task that failed on its own account and is held by nobody."""
        if self._outcome.decided:
            return
        task.failures += 1
        place = self._ledger.place(task)
        type_ = task.key.type
        facts = {"task": str(task.key), "worker": str(worker), "code": failure.code}
        match after_task_failure(self._settings, type_, task.failures, failure, permanent, place):
            case RetryTask(reason):
                task.not_for = worker
                task.not_for_until = now + self._settings.timings.retry_elsewhere_s
                line = f"Trying {place} again ({reason}): {failure.what}"
                self._emit(Record("TaskRetried", line, Severity.WARNING, facts))
            case DeadLetterTask(reason):
                self._ledger.dead_letter(task, failure)
                self._ledger.close(task, dead=True)
                self._streak.progress()  # what stood in the way is gone
                if type_ is TaskType.TRAINING:
                    self._emit(CloseTask(task.key))
                line = f"Going on without {place} ({reason}): {failure.what}"
                self._emit(Record("TaskDeadLettered", line, Severity.ERROR, facts))
            case FailJob(final, reason):
                self._ledger.dead_letter(task, failure)
                line = f"Cannot go on without {place} ({reason}): {failure.what}"
                self._emit(Record("TaskDeadLettered", line, Severity.ERROR, facts))
                self._outcome.fail(final)
