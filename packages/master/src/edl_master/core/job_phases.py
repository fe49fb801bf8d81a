"""The phases of a job, and which may follow which."""

from __future__ import annotations

from collections.abc import Sequence

from edl_master.core.effects import JobPhase
from edl_master.core.events import Event

_FINAL = (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)
_NEXT: dict[JobPhase, tuple[JobPhase, ...]] = {
    JobPhase.STARTING: (JobPhase.RUNNING, JobPhase.STOPPING),
    JobPhase.RUNNING: (JobPhase.FINISHING, JobPhase.STOPPING),
    JobPhase.FINISHING: (JobPhase.SUCCEEDED, JobPhase.STOPPING),
    JobPhase.STOPPING: (JobPhase.FAILED, JobPhase.CANCELLED),
}
"""No phase follows a final one."""


class InvalidTransition(Exception):
    """A job or worker was to change to a state that cannot follow the present one."""


class InvariantViolation(Exception):
    """The job's components contradict each other; ``history`` has the last events."""

    def __init__(self, what: str, history: Sequence[tuple[float, Event]]) -> None:
        lines = "\n".join(f"  {now:.3f} {event}" for now, event in history)
        super().__init__(f"{what}\nThe last events, oldest first:\n{lines}")
        self.history = tuple(history)


class JobPhases:
    """The present phase of a job."""

    def __init__(self) -> None:
        self.now = JobPhase.STARTING

    @property
    def final(self) -> bool:
        """Whether the job is over."""
        return self.now in _FINAL

    def move(self, phase: JobPhase) -> None:
        """Change the phase. Raises: InvalidTransition: the phase cannot follow the present one."""
        if phase not in _NEXT.get(self.now, ()):
            raise InvalidTransition(f"the job goes from {self.now} to {phase}")
        self.now = phase
