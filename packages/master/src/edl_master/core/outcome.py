"""How a job ends: decided once, by whoever comes first; the rest is carrying it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edl_master.core.effects import Effect, JobPhase, LogEvent, Severity
from edl_master.core.failure import Failure


@dataclass(frozen=True, slots=True)
class Ending:
    """The phase that a job will end in, once its workers are gone."""

    phase: JobPhase
    failure: Failure | None


class Outcome:
    """The decision about a job's end; later ones change nothing.

    Args:
        emit: takes effects.
    """

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self.ending: Ending | None = None

    @property
    def decided(self) -> bool:
        """Whether the job's end is decided."""
        return self.ending is not None

    def succeed(self) -> None:
        """All work is done."""
        if self.ending is None:
            self.ending = Ending(JobPhase.SUCCEEDED, None)
            self._emit(LogEvent("JobSucceeded", "The job has done all its work."))

    def fail(self, failure: Failure) -> None:
        """The job cannot go on."""
        where = f" ({failure.where})" if failure.where else ""
        line, facts = f"{failure.what}{where}", {"code": failure.code}
        if self.ending is None:
            self.ending = Ending(JobPhase.FAILED, failure)
            self._emit(LogEvent("JobFailed", line, Severity.ERROR, facts))
        else:
            self._emit(LogEvent("FailedWhileEnding", line, Severity.WARNING, facts))

    def cancel(self, reason: str) -> None:
        """Somebody stopped the job."""
        if self.ending is None:
            why = f": {reason}" if reason else ""
            remedy = "Start it again from its checkpoint to go on."
            failure = Failure("STOPPED", f"The job was stopped{why}.", remedy=remedy)
            self.ending = Ending(JobPhase.CANCELLED, failure)
            self._emit(LogEvent("JobStopped", failure.what, Severity.WARNING))
