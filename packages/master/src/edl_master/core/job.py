"""The master's heart: facts in, decisions out.

``JobState.handle`` takes one fact, lets the room that it concerns take it in, and then asks
what follows. The components: ``dispatch`` (answers to workers) over ``ledger`` (tasks, leases,
counts) and ``members`` (workers and their bodies); ``workflow`` (what there is to do, per type
of job) with ``evaluation``; ``outcome`` (how it ends); ``failures`` (policies); ``progress``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from edl_master.core.components import build_components
from edl_master.core.dispatch import Dispatch
from edl_master.core.effects import (
    Effect,
    EndJob,
    HeartbeatAnswer,
    JobPhase,
    LeaveJob,
    Record,
    Refused,
    ReleaseFrozen,
    Severity,
    TakeCheckpoint,
    TakeSnapshot,
)
from edl_master.core.events import (
    CheckpointFailed,
    CheckpointTaken,
    Event,
    GradientRejected,
    HeartbeatReceived,
    InstanceExited,
    InstanceFound,
    InstanceNotStarted,
    LeaseRequested,
    LeasesReturned,
    MasterFailed,
    MinibatchApplied,
    OutputFinished,
    ParametersFrozen,
    ScaleRequested,
    SnapshotTaken,
    StopRequested,
    TaskCompleted,
    TaskFailed,
    Tick,
    WorkerFailed,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.failure import Failure
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import TaskKey, Version
from edl_master.core.job_snapshot import identify, restore_snapshot, take_snapshot
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.view import JobView
from edl_master.core.view_builder import build_view
from edl_master.core.worker import IllegalStateChange, Member
from edl_master.core.worker_pool import InstanceEnd

EVENTS_REMEMBERED = 64
"""What an InvalidTransition tells of: the last moments, on a few screens."""

PAUSE_REPORTED_S = 2.0
"""Shorter pauses of the master are excused without a word."""

_FINAL = (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)
_PHASES: dict[JobPhase, tuple[JobPhase, ...]] = {
    JobPhase.STARTING: (JobPhase.RUNNING, JobPhase.STOPPING),
    JobPhase.RUNNING: (JobPhase.FINISHING, JobPhase.STOPPING),
    JobPhase.FINISHING: (JobPhase.SUCCEEDED, JobPhase.STOPPING),
    JobPhase.STOPPING: (JobPhase.FAILED, JobPhase.CANCELLED),
}
"""Which phase may follow which; the final ones are followed by none."""


class InvalidTransition(Exception):
    """The master's own parts contradict each other; carries the last facts as ``story``."""

    def __init__(self, what: str, story: Sequence[tuple[float, Event]]) -> None:
        told = "\n".join(f"  {now:.3f} {event}" for now, event in story)
        super().__init__(f"{what}\nThe last facts, oldest first:\n{told}")
        self.story = tuple(story)


class JobState:
    """One job, whole. Not safe for threads: its owner hands it one fact at a time.

    Args:
        settings: what to do and under which rules.
        data: records of each file of the main data.
        validation: records of each file of the validation data; empty: no evaluation.
        data_names, validation_names: names of the files for messages; may be left out.

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
    ) -> None:
        if not sum(data):
            raise ValueError("a job needs at least one record of data")
        self._identity = identify(settings, data)
        components = build_components(
            settings, data, validation, data_names, validation_names, self._emit
        )
        self._components = components
        self._members = components.members
        self._workflow = components.workflow
        self._progress = components.progress
        self._outcome = components.outcome
        self._dispatch = Dispatch(components)
        self._phase = JobPhase.STARTING
        self._begun = False
        self._restored = False
        self._clock: float | None = None
        self._story: deque[tuple[float, Event]] = deque(maxlen=EVENTS_REMEMBERED)
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one fact and answer with what is to be done, in order.

        The first ``Tick`` begins the job. ``now`` is in seconds of a monotonic clock.

        Raises:
            InvalidTransition: the master's own parts contradict each other.
        """
        before = now if self._clock is None else self._clock
        now = self._clock = max(now, before)
        self._story.append((now, event))
        self._effects = []
        try:
            if now - before > self._components.settings.timings.pause_s:
                self._excuse(now - before)
            if self._phase in _FINAL:
                self._refuse(event)
            else:
                if not self._outcome.decided:
                    self._progress.pass_time(now)
                self._take(event, now)
                self._follow(now)
        except IllegalStateChange as move:
            raise InvalidTransition(str(move), self._story) from move
        return self._effects

    def _excuse(self, pause_s: float) -> None:
        """The master was held up: what it could not hear does not count as silence."""
        if self._begun and self._phase not in _FINAL:
            if pause_s > PAUSE_REPORTED_S:
                line = f"The master was held up for {pause_s:.1f} s;"
                line += " nobody is blamed for that time."
                self._emit(Record("MasterPaused", line, Severity.WARNING))
            self._components.ledger.leases.extend_deadlines(pause_s)
            self._members.extend_deadlines(pause_s)

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _take(self, event: Event, now: float) -> None:
        """Let the fact change what it is about."""
        match event:
            case Tick():
                self._tick(now)
            case WorkerRegistered():
                member = self._members.register(event, now)
                if isinstance(member, Member):
                    self._dispatch.body_replaced(member, now)
                elif member is not None:
                    self._emit(LeaveJob(member))
            case InstanceFound():
                self._members.found(event, now)
            case WorkerReady():
                self._ready(event, now)
            case WorkerFailed(worker, body, failure):
                if isinstance(self._members.hear(worker, body, now), Member):
                    self._outcome.fail(failure)
            case InstanceExited():
                self._body_ended(self._members.exited(event, now), now)
            case InstanceNotStarted(worker, reason):
                self._body_ended(self._members.not_started(worker, reason, now), now)
            case HeartbeatReceived():
                self._dispatch.heartbeat(event, now)
            case LeaseRequested():
                self._dispatch.lease_requested(event, now)
            case MinibatchApplied():
                self._dispatch.minibatch_applied(event, now)
            case GradientRejected():
                self._progress.gradients_rejected += 1
            case TaskCompleted():
                self._dispatch.task_completed(event, now)
            case TaskFailed():
                self._dispatch.task_failed(event, now)
            case LeasesReturned():
                self._dispatch.leases_returned(event, now)
            case ParametersFrozen(name, version):
                self._frozen(name, version)
            case OutputFinished(failure):
                self._output_finished(failure)
            case SnapshotTaken(_, seconds, held_up_s):
                self._components.keeping.kept(seconds, now)
                self._held_up(held_up_s)
            case CheckpointTaken(version, seconds, held_up_s):
                self._held_up(held_up_s)
                self._emit(_taken(version, seconds))
            case CheckpointFailed(version, failure):
                self._emit(_not_kept(version, failure))
            case ScaleRequested(minimum, maximum):
                self._scale(minimum, maximum, now)
            case StopRequested(reason):
                self._outcome.cancel(reason)
            case MasterFailed(failure):
                self._outcome.fail(failure)
            case _:
                assert_never(event)

    # --- facts -----------------------------------------------------------------------------

    def _held_up(self, seconds: float) -> None:
        """For so long nobody could push."""
        holders = len(self._components.ledger.leases.holders)
        self._progress.goodput.take_off(TimeCategory.CHECKPOINT, seconds * holders)

    def _tick(self, now: float) -> None:
        if not self._begun:
            self._begun = True
            what = "goes on from a checkpoint" if self._restored else "starts"
            records = self._workflow.records_total
            workers = self._members.maximum
            crew = "1 worker" if workers == 1 else f"{workers} workers"
            line = f"The job {what}: {records} records, {crew}."
            self._emit(Record("JobStarted", line, facts={"records": str(records)}))
            self._members.begin(now)
        elif not self._outcome.decided:
            holders = self._components.ledger.leases.holders
            self._progress.spend(self._members.time_spent(holders))
        self._dispatch.leases_expired(now)
        silent = self._members.look_at_clock(now)
        for member in silent.lost:
            self._dispatch.body_lost(member, now)
        for found in silent.given_up:
            self._body_ended(found, now)
        if not self._outcome.decided:
            self._dispatch.check_for_stalls(now)
            at_work = self._phase in (JobPhase.RUNNING, JobPhase.FINISHING)
            if at_work and self._components.keeping.is_due(now):
                self._emit(TakeSnapshot())
            if self._phase is JobPhase.RUNNING:
                self._try_numbers(now)
        self._members.restart_due(now)

    def _try_numbers(self, now: float) -> None:
        """Have as many workers as bring something, of those that may be."""
        ledger, main = self._components.ledger, self._workflow.main
        done = ledger.records_complete(main) + ledger.records_applied(main)
        change = self._components.worker_count.look(now, self._members.ready_count, done)
        if change is not None:
            facts = {"workers": str(change.workers)}
            self._emit(
                Record("WorkersTried", f"{change.why[:1].upper()}{change.why[1:]}", facts=facts)
            )
            self._members.aim(change.workers, now)

    def _ready(self, event: WorkerReady, now: float) -> None:
        member = self._members.hear(event.worker, event.body, now)
        if not isinstance(member, Member):
            self._emit(LeaveJob(member))
            return
        self._members.ready(member, now)
        if self._phase is JobPhase.STARTING:
            self._move(JobPhase.RUNNING)

    def _body_ended(self, found: tuple[Member, InstanceEnd] | None, now: float) -> None:
        if found is not None:
            self._dispatch.body_ended(*found, now)
            if not self._outcome.decided:
                self._members.restart_due(now)

    def _frozen(self, name: str, version: Version) -> None:
        if self._outcome.decided:
            self._emit(ReleaseFrozen(name))
        elif not self._workflow.is_frozen(name, version):
            raise InvalidTransition(f"nobody asked for a frozen version {name!r}", self._story)

    def _output_finished(self, failure: Failure | None) -> None:
        if failure is not None:
            self._outcome.fail(failure)
        elif not self._outcome.decided and not self._workflow.output_finished():
            raise InvalidTransition("nobody asked to finish the output", self._story)

    def _scale(self, minimum: int, maximum: int, now: float) -> None:
        if self._outcome.decided:
            self._emit(Refused("the job is ending"))
        elif minimum < 0 or maximum < 1 or maximum < minimum:
            why = f"{minimum} to {maximum} workers make no sense: 0 <= min <= max, and max >= 1"
            self._emit(Refused(why))
        else:
            before = f"{self._members.minimum}:{self._members.maximum}"
            line = f"From {before} to {minimum}:{maximum} workers."
            self._emit(Record("Scaled", line, facts={"workers": f"{minimum}:{maximum}"}))
            self._members.scale(minimum, maximum, now)
            self._components.worker_count.scale(minimum, maximum)

    def _refuse(self, event: Event) -> None:
        """Answer those who ask after the end, and say what became of the last checkpoint."""
        match event:
            case WorkerRegistered() | WorkerReady() | LeaseRequested():
                self._emit(LeaveJob("job-over"))
            case HeartbeatReceived(leases=leases):
                self._emit(HeartbeatAnswer(leases, "job-over"))
            case TaskCompleted() | TaskFailed() | ScaleRequested():
                self._emit(Refused("the job is over"))
            case ParametersFrozen(name, _):
                self._emit(ReleaseFrozen(name))
            case CheckpointTaken(version, seconds):
                self._emit(_taken(version, seconds))  # the last one is kept after the end
            case CheckpointFailed(version, failure):
                self._emit(_not_kept(version, failure))
            case _:
                pass

    # --- what follows ----------------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Do what follows from what is true now."""
        if not self._outcome.decided and self._phase is not JobPhase.STARTING:
            self._workflow.advance()
            if self._workflow.finishing and self._phase is JobPhase.RUNNING:
                self._move(JobPhase.FINISHING)
                if (point := self._progress.loss_point(now, last=True)) is not None:
                    self._emit(point)
            if self._workflow.over:
                self._outcome.succeed()
        if self._outcome.ending is not None:
            self._end(self._outcome.ending.phase, self._outcome.ending.failure, now)

    def _end(self, phase: JobPhase, failure: Failure | None, now: float) -> None:
        """Let the workers leave, and when they are gone, end."""
        if not self._members.over:
            if phase is not JobPhase.SUCCEEDED:
                self._move(JobPhase.STOPPING)
            self._members.stop_all(now)
        if self._members.all_gone:
            trained = self.trains and self._progress.version > 0
            if phase is JobPhase.CANCELLED and trained:
                self._emit(TakeCheckpoint("the job was stopped"))
            self._move(phase)
            self._emit(EndJob(phase, failure))

    def _move(self, phase: JobPhase) -> None:
        if phase not in _PHASES.get(self._phase, ()):
            raise InvalidTransition(f"the job goes from {self._phase} to {phase}", self._story)
        self._phase = phase

    # --- looking, keeping ------------------------------------------------------------------

    def view(self, now: float) -> JobView:
        """Say what the job looks like now."""
        return build_view(self._components, self._phase, now)

    def snapshot(self) -> dict[str, Any]:
        """Return the position as JSON-able values; small, whatever the size of the data.

        The owner lets no fact in between this and the plane's own snapshot.
        """
        return take_snapshot(self._components, self._identity)

    @property
    def trains(self) -> bool:
        """Whether parameters belong to its position."""
        return self._components.settings.type is JobType.TRAIN

    def is_settled(self, key: TaskKey) -> bool:
        """Whether a task of the main work is done or dead."""
        return not self._workflow.unopened and self._components.ledger.is_settled(key)

    @classmethod
    def restore(
        cls,
        settings: JobSettings,
        data: tuple[int, ...],
        validation: tuple[int, ...],
        snapshot: Mapping[str, Any],
        *,
        data_names: Sequence[str] = (),
        validation_names: Sequence[str] = (),
        undone_s: float = 0.0,
        down_s: float = 0.0,
    ) -> JobState:
        """Make a job that goes on where the snapshot was taken, with no workers yet.

        Args:
            settings, data, validation, data_names, validation_names: as for a new one.
            snapshot: what ``snapshot`` returned.
            undone_s: how long the earlier master worked on after the snapshot.
            down_s: how long there was no master.

        Bodies that register before the first ``Tick`` are adopted; that Tick starts the rest.

        Raises:
            ValueError: the snapshot is of other data or another order of tasks.
        """
        job = cls(
            settings, data, validation, data_names=data_names, validation_names=validation_names
        )
        restore_snapshot(job._components, job._identity, snapshot)
        job._components.worker_count.scale(job._members.minimum, job._members.maximum)
        job._progress.away(undone_s, down_s, job._members.maximum)
        job._restored = True
        return job

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself; for tests."""
        ledger = self._components.ledger
        ledger.check_invariants()
        self._members.check_invariants()
        for lease in ledger.leases:
            assert self._members.may_hold(lease.worker), f"{lease} is held by nobody alive"
        assert self._phase not in _FINAL or not len(ledger.leases), "held after the end"


def _taken(version: Version, seconds: float) -> Record:
    line = f"A checkpoint of parameter version {version} took {seconds:.1f} s."
    return Record("CheckpointTaken", line, facts={"version": str(version)})


def _not_kept(version: Version, failure: Failure) -> Record:
    line = f"The checkpoint of parameter version {version} is not kept: {failure.what}."
    facts = {"version": str(version), "where": failure.where}
    return Record("CheckpointFailed", line, Severity.WARNING, facts)
