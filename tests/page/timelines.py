"""What the workers of a made-up job do when: a function of a status that ``page.jobs`` made."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.timeline import PhaseSpan, Span, SpanOutcome, TaskSpan
from edl_master.core.timeline_summary import JobTimes, TimelineSummary
from edl_proto.v1 import job_pb2
from edl_proto.v1.job_pb2 import JobStatus
from page.jobs import WARM_UP_S

ENDS_S = {1: WARM_UP_S + 31.0, 2: WARM_UP_S + 58.0}
"""When a worker loses its instance; the next one loads for three seconds."""

SLOW_INPUT_S = (WARM_UP_S + 40.0, WARM_UP_S + 52.0)
"""When worker 2 waits for its data."""


def times(status: JobStatus) -> JobTimes:
    """Where the time of the job's workers went, up to the moment of its status."""
    summary = TimelineSummary()
    try:
        began = datetime.fromisoformat(status.started_at).timestamp()
    except ValueError:  # hostile, or none
        began = 0.0
    for worker in status.workers:
        summary.add(_spans(began, status, worker.id))
    return summary.times()


def _spans(began: float, status: JobStatus, worker: int) -> Iterator[Span]:
    end = ENDS_S.get(worker, 1e9) if status.type == job_pb2.TRAIN else 1e9
    task = TaskKey(TaskType.TRAINING, 1, 0)
    for second in range(1, int(status.seconds)):
        phases = _phases(status.type, worker, float(second), end)
        yield PhaseSpan(began + second, sum(phases.values()), WorkerId(worker), phases)
        if second % 2 == 0 and "loading" not in phases:
            yield TaskSpan(began + second, 1.0, WorkerId(worker), task, SpanOutcome.DONE)
    if status.seconds > end:
        yield TaskSpan(began + end, 0.5, WorkerId(worker), task, SpanOutcome.LOST)


def _phases(
    kind: job_pb2.JobType.ValueType, worker: int, at: float, end: float
) -> dict[str, float]:
    """Where one second of a worker goes."""
    if at < WARM_UP_S - 1 or end < at < end + 3:
        return {"loading": 1.0}
    if end - 1 < at <= end:
        return {"compute": 0.5}  # and is heard of no more
    if kind != job_pb2.TRAIN:
        return {"other": 0.9, "idle": 0.1}
    if worker == 2 and SLOW_INPUT_S[0] < at < SLOW_INPUT_S[1]:
        return {"input": 0.72, "compute": 0.18, "exchange": 0.1}
    if int(at) % 25 == 5:
        return {"other": 0.7, "idle": 0.3}  # evaluation
    wait = 0.12 + 0.04 * (int(at * 7 + worker * 3) % 5)
    return {"compute": 0.9 - wait, "exchange": wait, "input": 0.1}
