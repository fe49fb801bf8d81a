"""Decides how a job ends: the first decision holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edl_master.core.effects import Effect, JobPhase, LogEvent, Severity
from edl_master.core.failure import Failure

MAX_WARNINGS = 100
"""A sound model has one or two; a faulty worker may send any number."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The final phase of a job, entered when its workers are gone."""

    phase: JobPhase
    failure: Failure | None


class Outcome:
    """The decision about a job's end; later decisions change nothing.

    Args:
        emit: takes effects.
    """

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self.ending: JobEnd | None = None
        self.warnings: list[str] = []
        """What the result of the job lacks, and which initial values did not fit."""

    @property
    def decided(self) -> bool:
        """Whether the job's end is decided."""
        return self.ending is not None

    def succeed(self) -> None:
        """End the job with success: all work is done."""
        if self.ending is None:
            self.ending = JobEnd(JobPhase.SUCCEEDED, None)
            self._emit(LogEvent("JobSucceeded", "The job has done all its work."))

    def fail(self, failure: Failure) -> None:
        """End the job with a failure: it cannot continue."""
        where = f" ({failure.where})" if failure.where else ""
        line, facts = f"{failure.what}{where}", {"code": failure.code}
        if self.ending is None:
            self.ending = JobEnd(JobPhase.FAILED, failure)
            self._emit(LogEvent("JobFailed", line, Severity.ERROR, facts))
        else:
            self._emit(LogEvent("FailedWhileEnding", line, Severity.WARNING, facts))

    def cancel(self, reason: str) -> None:
        """End the job as cancelled: a user or the system stopped it."""
        if self.ending is None:
            why = f": {reason}" if reason else ""
            failure = Failure("STOPPED", f"The job was stopped{why}.")
            self.ending = JobEnd(JobPhase.CANCELLED, failure)
            self._emit(LogEvent("JobStopped", failure.what, Severity.WARNING))

    def warn(self, warnings: Iterable[str]) -> None:
        """Note warnings about the model; each counts once."""
        for text in warnings:
            if text not in self.warnings and len(self.warnings) < MAX_WARNINGS:
                self.warnings.append(text)
                self._emit(LogEvent("ModelWarning", text, Severity.WARNING))
