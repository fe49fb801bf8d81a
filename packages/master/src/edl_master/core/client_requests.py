"""Handles clients' requests to a running job: to scale it, to set its learning rate, to stop."""

from __future__ import annotations

from edl_master.core.autoscaling import describe_range
from edl_master.core.components import JobComponents
from edl_master.core.effects import LogEvent, Refused
from edl_master.core.settings import MAX_WORKERS, JobType, is_worker_range


def scale(job: JobComponents, minimum: int, maximum: int, now: float) -> None:
    """Change the number of workers that the job wants."""
    if job.outcome.decided:
        job.emit(Refused("the job is ending"))
    elif not is_worker_range(minimum, maximum):
        why = f"not 0 <= {minimum} <= {maximum}, or not 1 <= {maximum} <= {MAX_WORKERS}"
        job.emit(Refused(why))
    else:
        before = describe_range(job.workers.minimum, job.workers.maximum)
        plural = "" if minimum == maximum == 1 else "s"
        line = f"Scaled from {before} to {describe_range(minimum, maximum)} worker{plural}."
        job.emit(LogEvent("Scaled", line, facts={"workers": f"{minimum}:{maximum}"}))
        job.instances.scale(minimum, maximum, now)
        job.worker_count.scale(minimum, maximum)


def set_learning_rate(job: JobComponents, rate: float, number: int) -> None:
    """Give all updates from now on this learning rate; ``number`` is that of the request."""
    if job.settings.type is not JobType.TRAIN:
        job.emit(Refused("it does not train"))
    elif job.outcome.decided or job.workflow.finishing:
        job.emit(Refused("its training is over"))
    else:
        job.callbacks.set_learning_rate(rate, number)


def stop(job: JobComponents, reason: str) -> None:
    """Stop a job; of a stream, train what has arrived, and end as jobs do whose data ends."""
    if job.stream is None or job.outcome.decided:
        job.outcome.cancel(reason)
    elif not job.stream.has_ended:
        job.stream.end()
        line = f"The stream ends after {job.stream.records} records: {reason}."
        job.emit(LogEvent("StreamEnded", line, facts={"records": str(job.stream.records)}))
