"""The result of a job: the one object that ``-o json`` prints and Python gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from edl.core.job_status import Failure, JobStatus, overall_rate
from edl.core.options import Verb

UNREADABLE = "UNREADABLE"
"""The state of a job whose record cannot be read."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Outcome of a job, readable as attributes and as a mapping.

    Attributes:
        job: its name.
        state: ``SUCCEEDED``, ``FAILED``, ``CANCELLED``, how far a detached job is, or
            ``UNREADABLE`` in a list.
        records_trained: records whose minibatches were applied, over all epochs.
        steps: minibatches applied.
        epochs: whole passes over the data.
        metrics: of the last evaluation.
        seconds: from the job's start to its end.
        records_per_s: records per second from the first ones done to the last, without start and
            end; of the whole job where all were done at once.
        dashboard_url: the job's page.
        output: folder of the result.
        predictions: number of them; None unless the job predicts.
        warnings: what the trained model lacks, and why.
        dead_tasks: tasks that failed in every attempt, whose records the job has left out.
        error: None unless the job failed, was stopped or cannot be read: code, what, where,
            remedy.
    """

    job: str
    state: str
    records_trained: int = 0
    steps: int = 0
    epochs: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    records_per_s: float = 0.0
    dashboard_url: str = ""
    output: str = ""
    predictions: int | None = None
    warnings: tuple[str, ...] = ()
    dead_tasks: int = 0
    error: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what ``-o json`` prints, without the fields that other kinds of jobs have."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["metrics"] = dict(self.metrics)
        values["warnings"] = list(self.warnings)
        if self.predictions is None:
            del values["predictions"]
        for name in ("error", "warnings", "dead_tasks"):
            if not values[name]:
                del values[name]
        if self.error is not None:
            values["error"] = dict(self.error)
        return values

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def keys(self) -> Any:
        return self.to_dict().keys()


def of_status(status: JobStatus) -> JobResult:
    """Return the result of a job at its present state."""
    return JobResult(
        job=status.job,
        state=status.state.value,
        records_trained=status.records_trained,
        steps=status.steps,
        epochs=status.epochs_done,
        metrics=dict(status.metrics),
        seconds=round(status.seconds, 3),
        records_per_s=round(overall_rate(status), 3),
        dashboard_url=status.dashboard_url,
        output=status.output,
        predictions=status.predictions if status.verb is Verb.PREDICT else None,
        warnings=status.warnings,
        dead_tasks=status.dead_tasks,
        error=None if status.failure is None else error_fields(status.failure),
    )


def unreadable(job: str, failure: Failure) -> JobResult:
    """What is known of a job whose record cannot be read: its name, and why."""
    return JobResult(job=job, state=UNREADABLE, error=error_fields(failure))


def error_fields(failure: Failure) -> dict[str, str]:
    """Return the part of a failure that ``-o json`` prints."""
    return {
        "code": failure.code,
        "what": failure.what,
        "where": failure.where,
        "remedy": failure.remedy,
    }
