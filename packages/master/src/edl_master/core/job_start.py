"""Begins a job: reports what there is to do, and starts the first workers."""

from __future__ import annotations

from edl_master.core.components import JobComponents
from edl_master.core.effects import LogEvent


def begin_job(job: JobComponents, *, continues: bool, now: float) -> None:
    """Report the start of a job and start its workers.

    Args:
        job: its components.
        continues: whether it continues from a checkpoint.
        now: the time of the first ``Tick``.
    """
    records = job.workflow.records_total
    begins = "continues from a checkpoint" if continues else "starts"
    data = "a stream" if job.stream else _plural(records, "record")
    amounts = f"{data}, {_plural(job.workers.maximum, 'worker')}"
    line = f"The job {begins}: {amounts}."
    job.emit(LogEvent("JobStarted", line, facts={"records": str(records)}))
    job.instances.begin(now)


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
