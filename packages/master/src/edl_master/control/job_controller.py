"""The job behind its lock: takes facts one at a time and has the job's decisions carried out.

Decisions about the plane and answers are carried out under the lock, in order; everything
that may take a while (processes, files) is only handed over here, see ``outside``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from edl_master.core.effects import (
    CloseTask,
    EndJob,
    FinishOutput,
    FlushGradients,
    FreezeParameters,
    HeartbeatAnswer,
    JobPhase,
    LeaseGranted,
    LeaveJob,
    LogEvent,
    LogScalar,
    Refused,
    ReleaseFrozen,
    RevokeLease,
    StartWorker,
    StopWorker,
    TakeCheckpoint,
    TakeSnapshot,
    WaitForWork,
)
from edl_master.core.events import (
    Event,
    GradientRejected,
    HeartbeatReceived,
    LeaseRequested,
    MasterFailed,
    MinibatchApplied,
    ParametersFrozen,
)
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskType, Version, WorkerId
from edl_master.core.job import JobState
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.view import JobView
from edl_master.core.workflow import FINAL
from edl_master.guarded_plane import GuardedPlane

log = logging.getLogger(__name__)

# Facts after which no waiting request for a task could be answered differently.
_QUIET = (HeartbeatReceived, LeaseRequested, MinibatchApplied, GradientRejected)


CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
"""Where parameter servers write what they are told to keep."""


class ExternalEffects(Protocol):
    """What a job's decisions reach beyond the master's memory. None of these may wait."""

    def start_worker(self, worker: WorkerId, attempt: int) -> None: ...

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None: ...

    def record(self, record: LogEvent, at_s: float) -> None: ...

    def log_scalar(self, point: LogScalar, at_s: float) -> None: ...

    def write_checkpoint(self, kept: Kept) -> None: ...

    def write_snapshot(self, kept: Kept) -> None: ...

    def finish_output(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """Ledger and parameters of one moment, for a checkpoint or a snapshot.

    Attributes:
        ledger: as ``JobState.snapshot`` returned it.
        plane: as the plane returned it, after that; None for jobs on a trained model.
        held_up_s: how long nobody could push meanwhile.
    """

    ledger: dict[str, Any]
    plane: Snapshot | None
    held_up_s: float

    @property
    def version(self) -> Version:
        """Of the parameters; 0 where there are none."""
        return Version(self.plane.meta["version"] if self.plane else 0)

    @property
    def label(self) -> str:
        """Under which parameter servers keep their parts; empty where there are none."""
        return str(self.plane.meta.get("label", "")) if self.plane else ""


@dataclass(frozen=True, slots=True)
class GrantedLease:
    """A lease, and how many minibatches of its task have been applied before."""

    lease: LeaseGranted
    skip_minibatches: int


@dataclass(frozen=True, slots=True)
class End:
    """How the job ended."""

    phase: JobPhase
    failure: Failure | None


Answer = GrantedLease | WaitForWork | LeaveJob | HeartbeatAnswer | Refused


class JobController:
    """Hands facts to the job and carries out what it decides.

    Args:
        job: the job; nobody else touches it.
        plane: the parameters; its lock is only taken after this one's.
        outside: for what is not done here.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        job: JobState,
        plane: GuardedPlane,
        outside: ExternalEffects,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._plane = plane
        self._external = outside
        self._clock = clock
        # A job that goes on from a checkpoint has worked before.
        self._started = clock() - job.view(clock()).seconds
        self._changed = threading.Condition()
        self._end: End | None = None

    def tell(self, event: Event) -> Answer | None:
        """Hand a fact to the job and carry out what it decides; returns the answer, if any."""
        with self._changed:
            answer = self._tell(event)
            if not isinstance(event, _QUIET):
                self._changed.notify_all()
            return answer

    def request_lease(
        self, request: LeaseRequested, wait_s: float, is_wanted: Callable[[], bool]
    ) -> Answer | None:
        """Ask for a task, and wait up to ``wait_s`` for one while somebody wants the answer."""
        deadline = self._clock() + wait_s
        with self._changed:
            while True:
                answer = self._tell(request)
                left_s = deadline - self._clock()
                if not isinstance(answer, WaitForWork) or left_s <= 0:
                    return answer
                self._changed.wait(min(left_s, answer.retry_in_s))
                if not is_wanted():
                    return answer

    def view(self) -> JobView:
        """What the job looks like now."""
        with self._changed:
            return self._job.view(self._clock())

    @property
    def seconds(self) -> float:
        """Since the job began, over all incarnations of its master."""
        return self._clock() - self._started

    @property
    def end(self) -> End | None:
        """How the job ended; None while it goes on."""
        return self._end

    def wait_for_end(self, timeout_s: float) -> End | None:
        """Wait for the end of the job, but not longer than ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None, timeout_s)
            return self._end

    # --- under the lock --------------------------------------------------------------------

    def _tell(self, event: Event) -> Answer | None:
        try:
            return self._handle(event)
        except Exception as defect:
            # Whatever this is, going on would be guessing. The job says so and ends.
            log.exception("the job cannot take %r", event)
            failure = Failure(
                "INTERNAL",
                f"{type(defect).__name__}: {defect}",
                where=f"the master, at {type(event).__name__}",
                remedy="This is an internal error of edl; the master's log has the traceback.",
                detail="\n".join(str(fact) for fact in getattr(defect, "history", ())),
            )
            if isinstance(event, MasterFailed):
                self._over(End(JobPhase.FAILED, failure))
            else:
                self._tell(MasterFailed(failure))
            return None

    def _handle(self, event: Event) -> Answer | None:
        answer: Answer | None = None
        facts: deque[Event] = deque([event])
        while facts:
            for effect in self._job.handle(facts.popleft(), self._clock()):
                match effect:
                    case LeaseGranted():
                        answer = self._lease(effect)
                    case WaitForWork() | LeaveJob() | HeartbeatAnswer() | Refused():
                        answer = effect
                    case FreezeParameters(name):
                        if name == FINAL:
                            self._plane.finish()
                        facts.append(ParametersFrozen(name, self._plane.freeze(name)))
                    case _:
                        self._carry_out(effect)
        return answer

    def _lease(self, lease: LeaseGranted) -> GrantedLease:
        skip = 0
        if lease.task.type is TaskType.TRAINING:
            skip = self._plane.grant(lease.task, lease.token)
        return GrantedLease(lease, skip)

    def _carry_out(
        self,
        effect: RevokeLease
        | CloseTask
        | FlushGradients
        | ReleaseFrozen
        | StartWorker
        | StopWorker
        | LogEvent
        | LogScalar
        | TakeCheckpoint
        | TakeSnapshot
        | FinishOutput
        | EndJob,
    ) -> None:
        match effect:
            case RevokeLease(task, token):
                self._plane.revoke(task, token)
            case CloseTask(task):
                self._plane.close(task)
            case FlushGradients():
                self._plane.flush()
            case ReleaseFrozen(name):
                self._plane.release(name)
            case StartWorker(worker, attempt):
                self._external.start_worker(worker, attempt)
            case StopWorker(worker, _, kill):
                self._external.stop_worker(worker, kill=kill)
            case LogEvent():
                self._external.record(effect, self.seconds)
            case LogScalar():
                self._external.log_scalar(effect, self.seconds)
            case TakeCheckpoint():
                if (kept := self._keep(CHECKPOINTS)) is not None:
                    self._external.write_checkpoint(kept)
            case TakeSnapshot():
                if (kept := self._keep(SNAPSHOTS)) is not None:
                    self._external.write_snapshot(kept)
            case FinishOutput():
                self._external.finish_output()
            case EndJob(phase, failure):
                self._over(End(phase, failure))
            case _:
                assert_never(effect)

    def _keep(self, place: str) -> Kept | None:
        """What there is to keep; None before a worker has described the model to train."""
        began = self._clock()
        # The ledger first: what the plane is ahead by is skipped when it is replayed.
        ledger = self._job.snapshot()
        plane = self._plane.snapshot(place)
        if plane is None and self._job.trains:
            return None
        return Kept(ledger, plane, self._clock() - began)

    def _over(self, end: End) -> None:
        self._end = self._end or end
        self._plane.let_go()
        self._changed.notify_all()
