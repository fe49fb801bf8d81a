"""Facts: everything that can happen to a job, in the words of the job.

The master's heart is ``JobState.handle(event, now) -> effects``. Adapters and servicers
translate what they see into these facts; nothing else ever changes a job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edl_master.core.failure import Failure
from edl_master.core.identifiers import InstanceId, TaskKey, Token, Version, WorkerId


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as its holder names it."""

    task: TaskKey
    token: Token


# --- workers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """A worker process said who it is. It has not loaded the model yet."""

    worker: WorkerId
    body: InstanceId
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class InstanceFound:
    """A body that an earlier master started is alive. Before the first ``Tick`` only.

    It is expected to be heard soon; until then its worker gets no other body.
    """

    worker: WorkerId
    body: InstanceId
    attempt: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has loaded the model file, and its layout agrees with the job's."""

    worker: WorkerId
    body: InstanceId


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """The worker is alive and says which leases it works on; answered by ``HeartbeatAnswer``.

    ``stacks`` is what every thread of the worker does, if the last answer asked for that.
    """

    worker: WorkerId
    body: InstanceId
    leases: tuple[HeldLease, ...]
    phase: str
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker cannot work at all: import, contract or shape errors."""

    worker: WorkerId
    body: InstanceId
    failure: Failure


@dataclass(frozen=True, slots=True)
class InstanceExited:
    """The platform saw a worker's process or pod end.

    ``exit_code`` is None when it ended by ``signal``. ``preempted`` is what the platform
    knows of it: asked to leave from outside, or taken away. ``body`` and ``attempt`` (the
    number in ``StartWorker``) say which body it was, as far as the platform knows; the
    end of a body that has been replaced changes nothing.
    """

    worker: WorkerId
    body: InstanceId | None
    exit_code: int | None
    signal: int | None
    preempted: bool
    log_tail: str = ""
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceNotStarted:
    """The platform could not start a worker's process or pod."""

    worker: WorkerId
    reason: str


# --- tasks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """A worker asks for work; answered by ``LeaseGranted``, ``WaitForWork`` or ``LeaveJob``."""

    worker: WorkerId
    body: InstanceId


@dataclass(frozen=True, slots=True)
class MinibatchApplied:
    """The parameter plane has applied a minibatch and advanced its task's count.

    With local steps it may have been several in one step: ``minibatch`` is the first of them,
    ``loss`` their mean.
    """

    worker: WorkerId
    lease: HeldLease
    minibatch: int
    records: int
    version: Version
    loss: float
    compute_s: float
    staleness: int
    minibatches: int = 1


@dataclass(frozen=True, slots=True)
class GradientRejected:
    """The parameter plane did not apply a gradient; nothing has changed."""

    worker: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    """The holder says that a task is done.

    ``applied`` is the plane's own count for a training task: unless it equals
    ``minibatches`` the completion is not true. ``metric_states`` is opaque to the core
    except that states of the same name add up.
    """

    worker: WorkerId
    lease: HeldLease
    minibatches: int
    applied: int
    records: int
    examples: int
    seconds: float
    metric_states: tuple[MetricState, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricState:
    """State variables of one metric, each a flat tuple of numbers with its shape and dtype."""

    name: str
    variables: tuple[Addable, ...]


@dataclass(frozen=True, slots=True)
class Addable:
    """Numbers that add up element by element."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The holder could not do a task: bad record, user code raising, NaN loss."""

    worker: WorkerId
    lease: HeldLease
    failure: Failure
    permanent: bool


@dataclass(frozen=True, slots=True)
class LeasesReturned:
    """The holder hands leases back undone; ``leaving`` when its process ends after this.

    ``body`` says which body of the worker it is, where that is known.
    """

    worker: WorkerId
    leases: tuple[HeldLease, ...]
    reason: str
    leaving: bool
    body: InstanceId | None = None


# --- the job -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParametersFrozen:
    """A frozen version exists under this name, as asked by ``FreezeParameters``."""

    name: str
    version: Version


@dataclass(frozen=True, slots=True)
class OutputFinished:
    """The master's own last work, as asked by ``FinishOutput``, is done, or failed."""

    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """A checkpoint is complete on its storage, as asked by ``TakeCheckpoint``.

    ``seconds`` is how long it took; for ``held_up_s`` of them nobody could push.
    """

    version: Version
    seconds: float
    held_up_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """Its store did not take a checkpoint; those before it are as they were."""

    version: Version
    failure: Failure


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The same for a snapshot, as asked by ``TakeSnapshot``."""

    version: Version
    seconds: float
    held_up_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """Somebody wants another number of workers; refused when the numbers make no sense."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the job to end now, keeping its state."""

    reason: str


@dataclass(frozen=True, slots=True)
class MasterFailed:
    """The master itself cannot go on: disk full, a defect."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; deadlines are looked at."""


Event = (
    WorkerRegistered
    | InstanceFound
    | WorkerReady
    | HeartbeatReceived
    | WorkerFailed
    | InstanceExited
    | InstanceNotStarted
    | LeaseRequested
    | MinibatchApplied
    | GradientRejected
    | TaskCompleted
    | TaskFailed
    | LeasesReturned
    | ParametersFrozen
    | OutputFinished
    | CheckpointTaken
    | CheckpointFailed
    | SnapshotTaken
    | ScaleRequested
    | StopRequested
    | MasterFailed
    | Tick
)
