"""The job state machine: events in, effects out.

``JobStateMachine.handle`` takes one event, lets the component that the event concerns change, and
then does what follows from the new state. The components: ``dispatch`` (answers to workers),
``lease_recovery`` and ``stall_monitor`` over ``ledger`` (tasks, leases, counts) and ``worker_pool``
(workers and their instances); ``workflow`` (what there is to do, per type of job) with
``evaluation``; ``outcome`` (how the job ends); ``failure_policy``; ``progress``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from edl_master.core import client_requests
from edl_master.core.components import build_components
from edl_master.core.dispatch import Dispatcher
from edl_master.core.effects import (
    Effect,
    EndJob,
    JobPhase,
    LeaveJob,
    LogEvent,
    ReleaseFrozen,
    Severity,
)
from edl_master.core.events import (
    AppliedCounted,
    ControlEvent,
    Event,
    GradientRejected,
    HeartbeatReceived,
    InstanceExited,
    InstanceNotStarted,
    InstanceSeen,
    LearningRateRequested,
    LeaseRequested,
    LeasesReturned,
    MasterFailed,
    MemberUnreachable,
    MinibatchApplied,
    OutputFinished,
    ParametersFrozen,
    SaveEvent,
    ScaleRequested,
    StopRequested,
    TaskCompleted,
    TaskEvent,
    TaskFailed,
    Tick,
    WorkerEvent,
    WorkerFailed,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.failure import Failure
from edl_master.core.identifiers import NO_COUNTS, ParameterCounts, TaskKey, Version
from edl_master.core.instance_control import InstanceEnd
from edl_master.core.interruption import NO_INTERRUPTION, Interruption
from edl_master.core.job_phases import InvalidTransition, InvariantViolation, JobPhases
from edl_master.core.job_snapshot import identify, restore_snapshot, take_snapshot
from edl_master.core.job_start import begin_job
from edl_master.core.late_answers import answer_after_end
from edl_master.core.lease_recovery import LeaseRecovery
from edl_master.core.metric_states import MetricStates
from edl_master.core.periodic_checks import PeriodicChecks
from edl_master.core.replica_events import ReplicaEvent
from edl_master.core.save_reports import SaveReports
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.stall_monitor import StallMonitor
from edl_master.core.view import JobView
from edl_master.core.view_builder import build_view
from edl_master.core.windows import SplitsDiscovered
from edl_master.core.worker import Worker

EVENTS_REMEMBERED = 64
"""How many events an InvariantViolation lists."""

_STATE_IS_DOUBTFUL = ("INTERNAL", "STALE_INCARNATION")
"""Failures after which the state is not saved: it may be wrong, or that of an earlier master."""

PAUSE_REPORTED_S = 2.0
"""Deadlines are extended for shorter pauses of the master too, but no event reports them."""


class JobStateMachine:
    """All state of one job; ``stream`` is data that keeps arriving. Takes one event at a time.

    Args:
        settings: what to do and under which rules.
        data: records of each file of the main data; none of a stream.
        validation: records of each file of the validation data; empty: no evaluation.
        data_names, validation_names: names of the files for messages; may be left out.
        interruption: what an earlier master left, of which nothing or a snapshot was kept.

    Raises:
        ValueError: the main data has no record.
    """

    def __init__(
        self,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...] = (),
        *,
        data_names: Sequence[str] = (),
        validation_names: Sequence[str] = (),
        interruption: Interruption = NO_INTERRUPTION,
    ) -> None:
        if not sum(data) and settings.window is None:
            raise ValueError("a job needs at least one record of data")
        self._identity = identify(settings, data)
        names, emit = (data_names, validation_names), (self._emit, self._emit_now)
        self._components = components = build_components(settings, data, validation, *names, *emit)
        self._workers, self.stream = components.workers, components.stream
        components.reports.take_over(interruption.workers)
        self._workflow = components.workflow
        self._replication = components.replication
        self._progress = components.progress
        self._outcome = components.outcome
        self._recovery = LeaseRecovery(components)
        self._stalls = StallMonitor(components, self._recovery)
        self._dispatch = Dispatcher(components, self._recovery, self._stalls)
        self.may_complete = self._dispatch.may_complete
        self.agree_on_layers = components.layer_states.describe
        self.replace_metric_addends = components.evaluations.replace_addends
        self._checks = PeriodicChecks(components, self._recovery, self._stalls)
        self._saves = SaveReports(components)
        self._phases = JobPhases()
        self._begun = False
        self._restored = False
        self._clock: float | None = None
        self._history: deque[tuple[float, Event]] = deque(maxlen=EVENTS_REMEMBERED)
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event and return its effects, in the order in which they are carried out.

        The first ``Tick`` begins the job. ``now`` is in seconds of a monotonic clock.

        Raises:
            InvariantViolation: the job's components contradict each other.
        """
        before = now if self._clock is None else self._clock
        now = self._clock = max(now, before)
        self._history.append((now, event))
        self._effects = []
        try:
            if now - before > self._components.settings.timings.pause_s:
                self._extend_deadlines(now - before)
            if self._phases.final and isinstance(event, SaveEvent):
                self._saves.take(event, now)
            elif self._phases.final:
                answer_after_end(event, self._emit, self._dispatch.record_late_minibatch)
            else:
                if not self._outcome.decided:
                    self._progress.pass_time(now)
                self._take(event, now)
                self._follow(now)
                for following in self._replication.follow():
                    self._take(following, now)
                    self._follow(now)
        except InvalidTransition as change:
            raise InvariantViolation(str(change), self._history) from change
        return self._effects

    def _extend_deadlines(self, pause_s: float) -> None:
        """Extend deadlines by a pause of the master, which is no silence of workers."""
        if self._begun and not self._phases.final:
            if pause_s > PAUSE_REPORTED_S:
                line = f"The master was paused for {pause_s:.1f} s; deadlines are extended."
                self._emit(LogEvent("MasterPaused", line, Severity.WARNING))
            self._components.ledger.leases.extend_deadlines(pause_s)
            self._components.instances.extend_deadlines(pause_s)

    def _emit(self, effect: Effect) -> None:
        if not self._replication.holds(effect):
            self._effects.append(effect)

    def _emit_now(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, TaskEvent):
            self._take_task_event(event, now)
        elif isinstance(event, WorkerEvent):
            self._take_worker_event(event, now)
        elif isinstance(event, SaveEvent):
            self._saves.take(event, now)
        elif isinstance(event, ReplicaEvent):
            self._replication.take(event, self._workers, self._components.reports, now)
        elif isinstance(event, MemberUnreachable):
            self._stalls.stop_unreachable(event, now)
        else:
            self._take_control_event(event, now)

    def _take_worker_event(self, event: WorkerEvent, now: float) -> None:
        reports = self._components.reports
        if isinstance(event, InstanceSeen):
            reports.handle_seen(event, now)
            return
        match event:
            case WorkerRegistered():
                worker = reports.handle_registration(event, now)
                if isinstance(worker, Worker):
                    self._recovery.handle_replaced_instance(worker, now)
                elif worker is not None:
                    self._emit(LeaveJob(worker))
            case WorkerReady():
                self._ready(event, now)
            case WorkerFailed(worker_id, instance, failure):
                if isinstance(reports.find_sender(worker_id, instance, now), Worker):
                    self._outcome.fail(failure)
            case InstanceExited():
                self._handle_end(reports.handle_exit(event, now), now)
            case InstanceNotStarted():
                self._handle_end(reports.handle_failed_start(event, now), now)
            case _:
                assert_never(event)

    def _take_task_event(self, event: TaskEvent, now: float) -> None:
        match event:
            case HeartbeatReceived():
                self._dispatch.heartbeat(event, now)
            case LeaseRequested():
                self._dispatch.handle_lease_request(event, now)
            case MinibatchApplied():
                self._dispatch.handle_applied_minibatch(event, now)
            case GradientRejected():
                self._progress.gradients_rejected += 1
            case TaskCompleted():
                self._dispatch.handle_completion(event, now)
            case TaskFailed():
                self._recovery.handle_task_failure(event, now)
            case AppliedCounted():
                self._recovery.handle_count(event)
            case LeasesReturned():
                self._dispatch.handle_returned_leases(event, now)
            case _:
                assert_never(event)

    def _take_control_event(self, event: ControlEvent, now: float) -> None:
        match event:
            case Tick():
                self._tick(now)
            case ParametersFrozen(name, version):
                self._frozen(name, version)
            case OutputFinished(failure):
                self._handle_output(failure)
            case ScaleRequested(minimum, maximum):
                client_requests.scale(self._components, minimum, maximum, now)
            case LearningRateRequested(rate, number):
                client_requests.set_learning_rate(self._components, rate, number)
            case StopRequested(reason):
                client_requests.stop(self._components, reason)
            case SplitsDiscovered(splits):
                assert self.stream is not None, "the job trains in epochs"
                self.stream.extend(splits, now)
            case MasterFailed(failure):
                self._outcome.fail(failure)
            case _:
                assert_never(event)

    def _tick(self, now: float) -> None:
        if not self._begun:
            self._begun = True
            self._replication.expect(worker.id for worker in self._workers if worker.instance)
            begin_job(self._components, continues=self._restored, now=now)
        elif not self._outcome.decided:
            self._progress.spend(self._workers.time_use(self._components.ledger.leases.holders))
        self._replication.proceed(now)  # before anything that may save what counts
        self._checks.run(self._phases.now, now)

    def _ready(self, event: WorkerReady, now: float) -> None:
        worker = self._components.reports.find_sender(event.worker, event.instance, now)
        if not isinstance(worker, Worker):
            self._emit(LeaveJob(worker))
            return
        self._components.reports.handle_ready(worker, now)
        self._replication.is_on |= event.replicated
        self._outcome.warn(event.warnings)
        other_state = self._components.layer_states.describe(event.layer_states)
        if failure := other_state or self._components.callbacks.describe(event.callbacks):
            self._outcome.fail(failure)
        if self._phases.now is JobPhase.STARTING:
            self._phases.move(JobPhase.RUNNING)

    def _handle_end(self, found: tuple[Worker, InstanceEnd] | None, now: float) -> None:
        if found is not None:
            self._recovery.handle_end(*found, now)
            if not self._outcome.decided:
                self._components.instances.restart_due(now)

    def _frozen(self, name: str, version: Version) -> None:
        if self._outcome.decided:
            self._emit(ReleaseFrozen(name))
        elif not self._workflow.handle_frozen(name, version):
            raise InvariantViolation(f"frozen version {name!r} was not requested", self._history)

    def _handle_output(self, failure: Failure | None) -> None:
        if failure is not None:
            self._outcome.fail(failure)
        elif not self._outcome.decided and not self._workflow.handle_output():
            raise InvariantViolation("the output was not requested", self._history)

    # --- what follows from the state -------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Do what follows from the present state."""
        if not self._outcome.decided and self._phases.now is not JobPhase.STARTING:
            self._workflow.advance()
            if self._workflow.finishing and self._phases.now is JobPhase.RUNNING:
                self._phases.move(JobPhase.FINISHING)
                if (point := self._progress.loss_point(now, last=True)) is not None:
                    self._emit(point)
            if self._workflow.over:
                self._outcome.succeed()
        if self._outcome.ending is not None:
            self._end(self._outcome.ending.phase, self._outcome.ending.failure, now)

    def _end(self, phase: JobPhase, failure: Failure | None, now: float) -> None:
        """Stop the workers; end the job when all of them are gone."""
        if not self._workers.closed:
            if phase is not JobPhase.SUCCEEDED:
                self._phases.move(JobPhase.STOPPING)
            self._components.instances.stop_all(now)
        if self._workers.all_gone:
            is_certain = failure is not None and failure.code not in _STATE_IS_DOUBTFUL
            if is_certain and self._replication.is_saved:
                self._effects += self._workflow.last_state(phase)
            self._phases.move(phase)
            self._emit(EndJob(phase, failure))

    # --- view and snapshot -----------------------------------------------------------------

    def view(self, now: float) -> JobView:
        """Return a view of the job."""
        return build_view(self._components, self._phases.now, now)

    def snapshot(self) -> dict[str, Any]:
        """Return the position: JSON-able values, and arrays for ``metric_states.array_to_json``.

        The owner passes no event between this and the snapshot of the parameters.
        """
        return take_snapshot(self._components, self._identity)

    @property
    def metric_addends(self) -> tuple[MetricStates, ...]:
        """The metric states of the running evaluation's tasks, for the owner to add up."""
        return self._components.evaluations.addends

    @property
    def trains(self) -> bool:
        """Whether the job trains, so that parameters belong to its position."""
        return self._components.settings.type is JobType.TRAIN

    def is_settled(self, key: TaskKey) -> bool:
        """Return whether a task of the main work is done or dead."""
        return not self._workflow.unopened and self._components.ledger.is_settled(key)

    @classmethod
    def restore(
        cls,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...],
        snapshot: Mapping[str, Any],
        counts: ParameterCounts = NO_COUNTS,
        *,
        data_names: Sequence[str] = (),
        validation_names: Sequence[str] = (),
        interruption: Interruption = NO_INTERRUPTION,
    ) -> JobStateMachine:
        """Return a job that continues where the snapshot was taken, with no workers yet.

        Args:
            settings, data, validation, data_names, validation_names, interruption: as above.
            snapshot, counts: what ``snapshot`` returned; what the parameters count.

        Instances that register before the first Tick are adopted; that Tick starts the rest.

        Raises:
            ValueError: the snapshot is of other data or another order of tasks.
        """
        job = cls(
            settings, data, validation, data_names=data_names, validation_names=validation_names
        )
        restore_snapshot(job._components, job._identity, snapshot, counts, interruption)
        job._restored = True
        return job

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself; for tests."""
        ledger = self._components.ledger
        ledger.check_invariants()
        self._workers.check_invariants()
        for lease in ledger.leases:
            assert self._workers.may_hold(lease.worker), f"{lease}: its worker is not alive"
        assert not self._phases.final or not len(ledger.leases), "held after the end"
