"""The job behind its lock: takes events one at a time and carries out their effects.

Effects on the parameter plane and answers are carried out under the lock, in order. Effects that
may take a while (processes, files) are only handed over here, see ``effect_executor``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from edl_master.control.captured_state import CapturedState
from edl_master.core.effects import (
    ChangeLearningRate,
    CloseTask,
    CountApplied,
    EndJob,
    FinishOutput,
    FlushGradients,
    FreezeParameters,
    HeartbeatAnswer,
    InspectWorker,
    JobPhase,
    KeepBest,
    LeaseGranted,
    LeaveJob,
    LogEvent,
    LogScalar,
    Refused,
    ReleaseFrozen,
    RestoreBest,
    RevokeLease,
    StartWorker,
    StopWorker,
    WaitForWork,
    WriteCheckpoint,
    WriteSnapshot,
)
from edl_master.core.events import (
    AppliedCounted,
    Event,
    GradientRejected,
    HeartbeatReceived,
    LeaseRequested,
    MasterFailed,
    MinibatchApplied,
    ParametersFrozen,
    SnapshotSkipped,
    TaskCompleted,
)
from edl_master.core.failure import Failure
from edl_master.core.identifiers import (
    CHECKPOINTS,
    SNAPSHOTS,
    HeldLease,
    TaskType,
    WorkerId,
)
from edl_master.core.job import JobStateMachine
from edl_master.core.layer_states import LayerSummary
from edl_master.core.metric_states import add_up
from edl_master.core.outcome import JobEnd
from edl_master.core.replica_events import (
    CountReplicaStep,
    GenerationRequested,
    ReplicaAnswer,
    RollBack,
    StoreValues,
)
from edl_master.core.view import JobView
from edl_master.core.workflow import FINAL
from edl_master.parameters.coordinator import Coordinator

log = logging.getLogger(__name__)

_NO_NEW_TASKS = (HeartbeatReceived, LeaseRequested, MinibatchApplied, GradientRejected)
"""Events after which no waiting lease request can be answered differently."""

MAX_WAITING_REQUESTS = 64
"""Lease requests that wait at the same time. Each holds a thread and is repeated with every change
of the job; workers beyond them ask again after a while."""


class ExternalEffects(Protocol):
    """The effects that reach beyond the master's memory. None of these methods may wait."""

    def start_worker(self, worker: WorkerId, attempt: int) -> None: ...

    def inspect_worker(self, worker: WorkerId) -> None: ...

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None: ...

    def record(self, event: LogEvent, at_s: float) -> None: ...

    def log_scalar(self, point: LogScalar, at_s: float) -> None: ...

    def write_checkpoint(self, state: CapturedState) -> None: ...

    def write_snapshot(self, state: CapturedState) -> None: ...

    def finish_output(self) -> None: ...


@dataclass(frozen=True, slots=True)
class GrantedLease:
    """A lease, and how many minibatches of its task have been applied before."""

    lease: LeaseGranted
    skip_minibatches: int


_Unchanged = WaitForWork | LeaveJob | HeartbeatAnswer | Refused | ReplicaAnswer
"""Effects that are the answer as they are."""

Answer = GrantedLease | _Unchanged


class JobController:
    """Passes events to the job and carries out their effects.

    Args:
        job: the job; only this object touches it.
        plane: the parameters; its lock is taken after this one's, never before.
        external: takes the effects that are not carried out here.
        crowded_retry_s: when a worker asks again while too many requests wait already.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        job: JobStateMachine,
        plane: Coordinator,
        external: ExternalEffects,
        crowded_retry_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._plane = plane
        self._external = external
        self._crowded_retry_s = crowded_retry_s
        self._clock = clock
        # A restored job has worked before.
        self._started = clock() - job.view(clock()).seconds
        self._changed = threading.Condition()
        self._adding_up = threading.Lock()
        self._waiting_requests = 0
        self.is_rolled_back = False
        """Whether the values are gone: the next master continues from the last snapshot."""
        self._end: JobEnd | None = None

    def handle(self, event: Event) -> Answer | None:
        """Pass an event to the job and carry out its effects; return the answer, if any."""
        with self._changed:
            answer = self._handle_safely(event)
            if not isinstance(event, _NO_NEW_TASKS):
                self._changed.notify_all()
        if isinstance(event, TaskCompleted) and event.metric_states:
            self._add_up_metrics()
        return answer

    def _add_up_metrics(self) -> None:
        """Add up metric states outside of the job lock: one may have a million numbers."""
        with self._adding_up:
            with self._changed:
                addends = self._job.metric_addends
            if len(addends) > 1:
                total = add_up(addends)
                with self._changed:
                    self._job.replace_metric_addends(addends, total)

    def request(
        self,
        request: LeaseRequested | GenerationRequested,
        wait_s: float,
        is_wanted: Callable[[], bool],
    ) -> Answer | None:
        """Ask for a task, or for a generation, and wait up to ``wait_s`` while there is none.

        At most ``MAX_WAITING_REQUESTS`` wait at a time; others learn when to ask again.
        """
        deadline = self._clock() + wait_s
        with self._changed:
            answer = self._handle_safely(request)
            if not isinstance(answer, WaitForWork) or wait_s <= 0:
                return answer
            if self._waiting_requests >= MAX_WAITING_REQUESTS:
                return replace(answer, retry_in_s=max(answer.retry_in_s, self._crowded_retry_s))
            self._waiting_requests += 1
            try:
                while isinstance(answer, WaitForWork):
                    left_s = deadline - self._clock()
                    if left_s <= 0:
                        return answer
                    self._changed.wait(min(left_s, answer.retry_in_s))
                    if not is_wanted():
                        return answer
                    answer = self._handle_safely(request)
                return answer
            finally:
                self._waiting_requests -= 1

    def may_complete(self, worker: WorkerId, held: HeldLease) -> bool:
        """Return whether a worker has the lease that it names, or has completed its task."""
        with self._changed:
            return self._job.may_complete(worker, held)

    def agree_on_layers(self, states: tuple[LayerSummary, ...]) -> Failure | None:
        """Return why a worker whose layers have these states cannot work for the job, if so.

        The states of the first worker that asks become the job's.
        """
        with self._changed:
            return self._job.agree_on_layers(states)

    def view(self) -> JobView:
        """Return a view of the job."""
        with self._changed:
            return self._job.view(self._clock())

    def find_oldest_split(self) -> int | None:
        """Return the first split of the stream that is needed; None: it has ended, or is none."""
        with self._changed:
            return None if (own := self._job.stream) is None or own.has_ended else own.oldest_split

    def count_waiting(self) -> int:
        """Return the number of records of the stream that have come and not trained."""
        progress = self.view().progress
        return progress.records_total - progress.records_done

    @property
    def seconds(self) -> float:
        """The seconds since the job began, over all incarnations of its master."""
        return self._clock() - self._started

    @property
    def end(self) -> JobEnd | None:
        """How the job ended; None before its end."""
        return self._end

    def wait_for_end(self, timeout_s: float) -> JobEnd | None:
        """Wait for the end of the job, but not longer than ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None, timeout_s)
            return self._end

    # --- under the lock --------------------------------------------------------------------

    def _handle_safely(self, event: Event) -> Answer | None:
        try:
            return self._handle(event)
        except Exception as error:
            # The state of the job cannot be trusted any more: the job reports this and ends.
            log.exception("the job cannot take %r", event)
            failure = Failure(
                "INTERNAL",
                f"{type(error).__name__}: {error}",
                where=f"the master, at {type(event).__name__}",
                remedy="This is an internal error of edl; the master's log has the traceback.",
                detail="\n".join(str(past) for past in getattr(error, "history", ())),
            )
            if isinstance(event, MasterFailed):
                self._over(JobEnd(JobPhase.FAILED, failure))
            else:
                self._handle_safely(MasterFailed(failure))
            return None

    def _handle(self, event: Event) -> Answer | None:
        answer: Answer | None = None
        events: deque[Event] = deque([event])
        while events:
            for effect in self._job.handle(events.popleft(), self._clock()):
                match effect:
                    case LeaseGranted():
                        answer = self._lease(effect)
                    case _ if isinstance(effect, _Unchanged):
                        answer = effect
                    case FreezeParameters(name):
                        if name == FINAL:
                            self._plane.finish()
                        events.append(ParametersFrozen(name, self._plane.freeze(name)))
                    case CountApplied(task):
                        events.append(AppliedCounted(task, self._plane.count_applied(task)))
                    case WriteSnapshot():
                        if (state := self._capture_state(SNAPSHOTS)) is None:
                            events.append(SnapshotSkipped())
                        else:
                            self._external.write_snapshot(state)
                    case _:
                        self._carry_out(effect)
        return answer

    def _lease(self, lease: LeaseGranted) -> GrantedLease:
        skip = 0
        if lease.task.type is TaskType.TRAINING:
            skip = self._plane.grant(lease.task, lease.token, lease.worker)
        return GrantedLease(lease, skip)

    def _carry_out(  # noqa: C901, PLR0912  (one case for each effect)
        self,
        effect: RevokeLease
        | CloseTask
        | FlushGradients
        | ChangeLearningRate
        | KeepBest
        | RestoreBest
        | ReleaseFrozen
        | StartWorker
        | InspectWorker
        | StopWorker
        | LogEvent
        | LogScalar
        | WriteCheckpoint
        | FinishOutput
        | CountReplicaStep
        | StoreValues
        | RollBack
        | EndJob,
    ) -> None:
        match effect:
            case RevokeLease(task, token):
                self._plane.revoke(task, token)
            case CloseTask(task):
                self._plane.close(task)
            case FlushGradients():
                self._plane.flush()
            case ChangeLearningRate(rate):
                self._plane.set_learning_rate(rate)
            case KeepBest():
                self._plane.keep_best()
            case RestoreBest():
                self._plane.restore_best()
            case ReleaseFrozen(name):
                self._plane.release(name)
            case StartWorker(worker, attempt):
                self._external.start_worker(worker, attempt)
            case InspectWorker(worker):
                self._external.inspect_worker(worker)
            case StopWorker(worker, kill):
                self._external.stop_worker(worker, kill=kill)
            case LogEvent():
                self._external.record(effect, self.seconds)
            case LogScalar():
                self._external.log_scalar(effect, self.seconds)
            case WriteCheckpoint():
                if (state := self._capture_state(CHECKPOINTS)) is not None:
                    self._external.write_checkpoint(state)
            case FinishOutput():
                self._external.finish_output()
            case CountReplicaStep():
                self._plane.count_step(effect)
            case StoreValues(worker, version):
                self._plane.store_values(worker, version)
            case RollBack():
                self.is_rolled_back = True
                self._changed.notify_all()
            case EndJob(phase, failure):
                self._over(JobEnd(phase, failure))
            case _:
                assert_never(effect)

    def _capture_state(self, storage: str) -> CapturedState | None:
        """Copy ledger and parameters; None before a worker has described the model to train."""
        began = self._clock()
        # The ledger first: minibatches that only the plane counts are skipped when replayed.
        ledger = self._job.snapshot()
        plane = self._plane.snapshot(storage)
        if plane is None and self._job.trains:
            return None
        oldest = self._job.stream.oldest_split if self._job.stream is not None else 0
        return CapturedState(ledger, plane, self._clock() - began, oldest)

    def _over(self, end: JobEnd) -> None:
        self._end = self._end or end
        self._plane.end_waits()
        self._changed.notify_all()
