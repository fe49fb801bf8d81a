"""Events: everything that can happen to a job.

The job state machine is ``JobStateMachine.handle(event, now) -> effects``. Adapters and servicers
translate what they see into these events; nothing else ever changes a job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edl_master.core.failure import Failure
from edl_master.core.identifiers import (
    AppliedCount,
    HeldLease,
    InstanceId,
    TaskKey,
    Version,
    WorkerId,
)
from edl_master.core.layer_states import LayerSummary
from edl_master.core.metric_states import MetricStates
from edl_master.core.replica_events import ReplicaEvent
from edl_master.core.windows import SplitsDiscovered

# --- workers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """An instance registered as a worker. It has not loaded the model yet."""

    worker: WorkerId
    instance: InstanceId
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class InstanceFound:
    """An instance that an earlier master started is alive. Before the first ``Tick`` only.

    It should send a message soon; until then its worker gets no other instance.
    """

    worker: WorkerId
    instance: InstanceId
    attempt: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has loaded the model file, and its layout agrees with the job's.

    ``warnings`` say what a trained model will lack.
    """

    worker: WorkerId
    instance: InstanceId
    warnings: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    """Names of the callbacks of the model file, to be called at the ends of epochs."""
    layer_states: tuple[LayerSummary, ...] = ()
    """What the model's layers have taken from data or files."""
    replicated: bool = False
    """Whether the worker holds all values, and trains in step with the others."""


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """The worker is alive and names its leases; answered by ``HeartbeatAnswer``.

    ``stacks`` has the stacks of all its threads, if the last answer asked for them.
    """

    worker: WorkerId
    instance: InstanceId
    leases: tuple[HeldLease, ...]
    phase: str
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker cannot work at all: import, model-file or shape errors."""

    worker: WorkerId
    instance: InstanceId
    failure: Failure


@dataclass(frozen=True, slots=True)
class InstanceExited:
    """The platform saw a worker's process or pod end.

    ``exit_code`` is None when it ended by ``signal``. ``preempted`` is what the platform
    knows about the end: asked to leave from outside, or removed. ``instance`` and ``attempt``
    (the number in ``StartWorker``) identify the instance, as far as the platform knows; the
    end of an instance that has been replaced changes nothing. ``cause`` is the platform's reason
    in words; empty if code or signal say everything.
    """

    worker: WorkerId
    instance: InstanceId | None
    exit_code: int | None
    signal: int | None
    preempted: bool
    log_tail: str = ""
    attempt: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class InstanceNotStarted:
    """The platform could not start a worker's process or pod.

    ``permanent``: every further attempt would end alike, as with an image that does not exist.
    """

    worker: WorkerId
    reason: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class InstancePending:
    """The platform has no place for a worker's instance yet, or has one now: ``reason`` is empty.

    ``reason`` is one word of the platform, ``detail`` its sentence, which may change each time.
    """

    worker: WorkerId
    reason: str
    detail: str = ""


# --- tasks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """A worker asks for a task; answered by ``LeaseGranted``, ``WaitForWork`` or ``LeaveJob``."""

    worker: WorkerId
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class MinibatchApplied:
    """The parameter plane has applied a minibatch and advanced its task's count.

    With local steps it may have been several in one step: ``loss`` is their mean.
    """

    worker: WorkerId
    lease: HeldLease
    records: int
    version: Version
    loss: float
    staleness: int
    minibatches: int = 1


@dataclass(frozen=True, slots=True)
class GradientRejected:
    """The parameter plane did not apply a gradient; nothing has changed."""


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    """The holder reports that a task is done.

    ``applied`` is the parameter plane's own count for a training task: the completion is
    refused unless it equals ``minibatches``. ``metric_states`` is opaque to the core
    except that states of the same name add up. ``warnings`` say what a trained model lacks.
    """

    worker: WorkerId
    lease: HeldLease
    minibatches: int
    applied: int
    records: int
    examples: int
    metric_states: MetricStates = ()
    metrics: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    callbacks: CallbackReply | None = None


@dataclass(frozen=True, slots=True)
class CallbackReply:
    """The requests of the model file's callbacks at the end of an epoch.

    ``state`` is opaque: the next call gets it, whichever worker makes it.
    """

    state: bytes
    stopped_by: str = ""
    """The callback that ends the training; empty: it continues."""
    learning_rate: float | None = None
    """From now on; None: as before."""
    keep_best: bool = False
    """The present values are the best so far."""
    restore_best: bool = False
    """Training ends, and the best values become the model."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The holder could not do a task: bad record, user code raising, NaN loss."""

    worker: WorkerId
    lease: HeldLease
    failure: Failure
    permanent: bool


@dataclass(frozen=True, slots=True)
class LeasesReturned:
    """The holder returns leases without having done their tasks; ``leaving``: its process ends.

    ``instance`` is the worker's instance, where the message names it.
    """

    worker: WorkerId
    leases: tuple[HeldLease, ...]
    reason: str
    leaving: bool
    instance: InstanceId | None = None


@dataclass(frozen=True, slots=True)
class AppliedCounted:
    """The answer to ``CountApplied``: how much of a task is in the model."""

    task: TaskKey
    count: AppliedCount


# --- the job -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParametersFrozen:
    """A frozen version exists under this name, as asked by ``FreezeParameters``."""

    name: str
    version: Version


@dataclass(frozen=True, slots=True)
class OutputFinished:
    """The master has finished the output, as asked by ``FinishOutput``, or failed to."""

    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """A checkpoint is complete on its storage, as asked by ``WriteCheckpoint``.

    ``seconds`` is how long it took; for ``paused_s`` of them no worker could push.
    """

    version: Version
    seconds: float
    paused_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The store did not take a checkpoint; earlier ones are unchanged."""

    version: Version
    failure: Failure


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot is complete on the disk, as asked by ``WriteSnapshot``."""

    version: Version
    seconds: float
    paused_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotSkipped:
    """There is nothing to save yet: no worker has described the model to train."""


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """A client asks for another number of workers; refused when the range is invalid."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class LearningRateRequested:
    """A client asks for a constant learning rate; refused when training is over.

    ``number`` counts these requests, so that a later master repeats only one that its snapshot
    does not have; 0: the next one.
    """

    learning_rate: float
    number: int = 0


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A user or the system asks the job to end now; its state is kept. A stream ends first."""

    reason: str


@dataclass(frozen=True, slots=True)
class MasterFailed:
    """The master itself cannot continue: disk full, internal error."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; deadlines are checked."""


@dataclass(frozen=True, slots=True)
class InstanceInspected:
    """A platform's report on an instance that runs and has not registered.

    ``summary`` is a clause, such as one with the last line of the instance's log.
    """

    worker: WorkerId
    attempt: int
    summary: str


@dataclass(frozen=True, slots=True)
class MemberUnreachable:
    """A member of the replica group cannot be reached by another one, and has to end.

    Attributes:
        worker: the member.
        peer: the other one.
        cause: what one of them has said about it.
    """

    worker: WorkerId
    peer: WorkerId
    cause: str


InstanceSeen = InstanceFound | InstancePending | InstanceInspected
"""What a platform reports of an instance that has neither registered nor ended."""

WorkerEvent = (
    WorkerRegistered
    | InstanceSeen
    | WorkerReady
    | WorkerFailed
    | InstanceExited
    | InstanceNotStarted
)
"""The events that concern the instances of workers."""

TaskEvent = (
    HeartbeatReceived
    | LeaseRequested
    | MinibatchApplied
    | GradientRejected
    | TaskCompleted
    | TaskFailed
    | AppliedCounted
    | LeasesReturned
)
"""The events that concern tasks and their leases."""

SaveEvent = SnapshotTaken | SnapshotSkipped | CheckpointTaken | CheckpointFailed
"""The events that concern snapshots and checkpoints."""

ControlEvent = (
    ParametersFrozen
    | OutputFinished
    | ScaleRequested
    | LearningRateRequested
    | StopRequested
    | MasterFailed
    | SplitsDiscovered
    | Tick
)
"""The events that concern the job as a whole."""

Event = WorkerEvent | TaskEvent | SaveEvent | ControlEvent | ReplicaEvent | MemberUnreachable
