"""Decisions: everything a job may ask the world to do.

``app`` carries them out in the order given, before the next fact is handled. The first five
are the answer to the caller whose request was the fact, at most one per fact; a request that
has none of them was taken as it was meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from edl_master.core.events import HeldLease, MetricState
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId


class JobPhase(StrEnum):
    """Where a job is in its life; the last three are final."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Severity(StrEnum):
    """How much a line of the job's events matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# --- answers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """Records ``start`` to ``stop`` (exclusive) of the file with number ``file``."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The caller holds this task from now on.

    For a training task ``app`` calls the plane's ``grant`` first and tells the worker how
    many minibatches to skip.
    """

    worker: WorkerId
    task: TaskKey
    token: Token
    ttl_s: float
    records: Range | None
    seed: int
    frozen: str = ""
    version: Version | None = None
    metric_states: tuple[MetricState, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """Nothing to do for the caller now."""

    retry_in_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveJob:
    """Nothing to do for the caller any more: job-over, scaled-down, replaced, unknown-worker.

    Answers ``LeaseRequested``, and ``WorkerRegistered`` or ``WorkerReady`` of an instance that is
    not wanted.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Which of the named leases the caller no longer holds, and why to leave, if it has to.

    With ``tell_stacks`` the next heartbeat is to say what every thread does.
    """

    lost: tuple[HeldLease, ...]
    leave: str = ""
    tell_stacks: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The fact named a lease or instance that is not current, or asked for the impossible.

    Nothing has changed.
    """

    reason: str


# --- the parameter plane -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RevokeLease:
    """A training lease was lost: fence its token and free its slot; the count stays."""

    task: TaskKey
    token: Token


@dataclass(frozen=True, slots=True)
class CloseTask:
    """A training task is complete or dead: forget its count."""

    task: TaskKey


@dataclass(frozen=True, slots=True)
class FlushGradients:
    """Sync mode, end of an epoch: apply what has been accumulated."""


@dataclass(frozen=True, slots=True)
class FreezeParameters:
    """Keep the present version under a name, and tell by ``ParametersFrozen``."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseFrozen:
    """Nobody needs this frozen version any more."""

    name: str


# --- the platform --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start an instance for this worker; ``attempt`` counts its instances from 0."""

    worker: WorkerId
    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask the worker's instance to leave; kill it after its grace period, or at once."""

    worker: WorkerId
    reason: str
    kill: bool = False


# --- the outside ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line for the job's events: ``kind`` is a stable reason such as ``TaskRetried``."""

    kind: str
    message: str
    severity: Severity = Severity.INFO
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogScalar:
    """A point of a curve: loss or a metric, at a parameter version."""

    name: str
    version: Version
    value: float


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Write ledger and parameters, together, to the checkpoint directory."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Write the same for the next master of this job, should this one die."""


@dataclass(frozen=True, slots=True)
class FinishOutput:
    """Make the output of what the tasks have written; answered by ``OutputFinished``.

    Of predictions: join the parts in the order of the tasks. Of training: put the exported model in
    its place.
    """


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job is over: its phase is final, no fact changes it any more.

    All workers have been told to leave; instances that outlived the grace period are being
    killed by the ``StopWorker`` effects before this one.
    """

    phase: JobPhase
    failure: Failure | None = None


Effect = (
    LeaseGranted
    | WaitForWork
    | LeaveJob
    | HeartbeatAnswer
    | Refused
    | RevokeLease
    | CloseTask
    | FlushGradients
    | FreezeParameters
    | ReleaseFrozen
    | StartWorker
    | StopWorker
    | LogEvent
    | LogScalar
    | TakeCheckpoint
    | TakeSnapshot
    | FinishOutput
    | EndJob
)
