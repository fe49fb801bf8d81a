"""Effects: everything that the job state machine may request.

``JobController`` carries them out in order, before it handles the next event. The first five answer
the caller whose request was the event. An event has at most one answer; if it has none, the request
has succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from edl_master.core.failure import Failure
from edl_master.core.identifiers import HeldLease, TaskKey, Token, Version, WorkerId
from edl_master.core.metric_states import MetricStates
from edl_master.core.replica_events import ReplicaEffect


class JobPhase(StrEnum):
    """The phase of a job; the last three are final."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Severity(StrEnum):
    """The severity of an event of the job's log."""

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
    """The caller holds this task.

    For a training task the controller calls the plane's ``grant``, which returns how many
    minibatches the worker skips.
    """

    worker: WorkerId
    task: TaskKey
    token: Token
    records: tuple[Range, ...]
    """None for a task that has none; several for a mixed one."""
    seed: int
    frozen: str = ""
    version: Version | None = None
    metric_states: tuple[MetricStates, ...] = ()
    """Of all tasks of an evaluation, for its summary; the holder gets their sum."""
    callbacks: CallbackCall | None = None
    learning_rate: float | None = None
    """What callbacks have set, for local steps; None: as the optimizer says."""
    crashes: int = 0
    """Instances that ended on their own account while they worked on this task."""
    shuffled: bool = False
    """Whether the holder brings the records into a random order."""


@dataclass(frozen=True, slots=True)
class CallbackCall:
    """The arguments of a call of the callbacks; the task's round counts the ended epochs."""

    state: bytes
    logs: dict[str, float]
    learning_rate: float | None
    train_end: bool
    """The model has its last values: only ``on_train_end`` is called."""
    epoch_begin: bool
    """The job has more epochs than the last call knew: only ``on_epoch_begin`` is called."""


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """There is no task for the caller now."""

    retry_in_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveJob:
    """The caller must leave: job-over, scaled-down, replaced, unknown-worker.

    Answers ``LeaseRequested``, and ``WorkerRegistered`` or ``WorkerReady`` of an instance that is
    not wanted.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The named leases that the caller no longer holds, and the reason to leave if it must.

    With ``send_stacks`` the next heartbeat must bring the stacks of all threads.
    """

    lost: tuple[HeldLease, ...]
    leave: str = ""
    send_stacks: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The event names a lease or instance that is not current, or asks for the impossible.

    Nothing has changed.
    """

    reason: str


# --- the parameter plane -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RevokeLease:
    """A training lease was lost: fence its token and free its step permit; the count stays."""

    task: TaskKey
    token: Token


@dataclass(frozen=True, slots=True)
class CountApplied:
    """Ask how much of a training task without a holder is in the model: ``AppliedCounted``."""

    task: TaskKey


@dataclass(frozen=True, slots=True)
class CloseTask:
    """A training task is complete or dead: forget its count."""

    task: TaskKey


@dataclass(frozen=True, slots=True)
class FlushGradients:
    """Sync mode, end of an epoch: apply what has been accumulated."""


@dataclass(frozen=True, slots=True)
class ChangeLearningRate:
    """The request to override the learning rate of the optimizer's configuration from now on."""

    rate: float


@dataclass(frozen=True, slots=True)
class KeepBest:
    """The present values are the best so far: keep a copy, which snapshots include."""


@dataclass(frozen=True, slots=True)
class RestoreBest:
    """Training is over: the values kept as the best become the present ones."""


@dataclass(frozen=True, slots=True)
class FreezeParameters:
    """Freeze the present version under a name; answered by ``ParametersFrozen``."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseFrozen:
    """This frozen version is not needed any more."""

    name: str


# --- the platform --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start an instance for this worker; ``attempt`` counts its instances from 0."""

    worker: WorkerId
    attempt: int


@dataclass(frozen=True, slots=True)
class InspectWorker:
    """Ask the platform what it knows of the worker's instance, which does not register."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask the worker's instance to leave; kill it after its grace period, or at once."""

    worker: WorkerId
    kill: bool = False


# --- log and files -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An entry of the job's event log: ``kind`` is a stable reason such as ``TaskRetried``."""

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
class WriteCheckpoint:
    """Write ledger and parameters, together, to the checkpoint directory."""


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write ledger and parameters for the next master of this job, in case this one fails."""


@dataclass(frozen=True, slots=True)
class FinishOutput:
    """Make the output from the files of the tasks; answered by ``OutputFinished``.

    Predictions: join the parts in the order of the tasks. Training: put the exported model in its
    place.
    """


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job is over: its phase is final, no event changes it any more.

    All workers have been asked to leave; the ``StopWorker`` effects before this one kill
    instances that survived the grace period.
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
    | CountApplied
    | CloseTask
    | FlushGradients
    | ChangeLearningRate
    | KeepBest
    | RestoreBest
    | FreezeParameters
    | ReleaseFrozen
    | StartWorker
    | InspectWorker
    | StopWorker
    | LogEvent
    | LogScalar
    | WriteCheckpoint
    | WriteSnapshot
    | FinishOutput
    | EndJob
    | ReplicaEffect
)
