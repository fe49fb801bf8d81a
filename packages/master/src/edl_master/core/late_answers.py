"""Answers to events after the end of a job, except those about checkpoints.

The last checkpoint of a job is often complete only after the job's end.
"""

from __future__ import annotations

from collections.abc import Callable

from edl_master.core.effects import (
    Effect,
    HeartbeatAnswer,
    LeaveJob,
    Refused,
    ReleaseFrozen,
)
from edl_master.core.events import (
    Event,
    HeartbeatReceived,
    LearningRateRequested,
    LeaseRequested,
    MinibatchApplied,
    ParametersFrozen,
    ScaleRequested,
    TaskCompleted,
    TaskFailed,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.identifiers import Version
from edl_master.core.replica_events import (
    GenerationRequested,
    GroupLeft,
    StepsCounted,
    StepsReported,
    ValuesAccepted,
    ValuesSent,
)


def answer_after_end(
    event: Event, emit: Callable[[Effect], None], count: Callable[[MinibatchApplied], None]
) -> None:
    """Answer requests that come after the end; nothing changes the job any more.

    Args:
        event: what came.
        emit: takes the answer.
        count: takes a minibatch that was applied before the end, and so is in the last checkpoint.
    """
    match event:
        case MinibatchApplied():
            count(event)
        case WorkerRegistered() | WorkerReady() | LeaseRequested():
            emit(LeaveJob("job-over"))
        case HeartbeatReceived(leases=leases):
            emit(HeartbeatAnswer(leases, "job-over"))
        case TaskCompleted() | TaskFailed() | ScaleRequested() | LearningRateRequested():
            emit(Refused("the job is over"))
        case ParametersFrozen(name, _):
            emit(ReleaseFrozen(name))
        case GenerationRequested():
            emit(GroupLeft())
        case StepsReported():
            emit(StepsCounted(Version(0), ended=True))
        case ValuesSent():
            emit(ValuesAccepted(accepted=False))
        case _:
            pass
