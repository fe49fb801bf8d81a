"""The timeline of a job's workers, as the master has recorded it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PHASES = ("compute", "input", "exchange", "other", "idle", "loading")
"""Where the time of a worker goes, in the order in which people read it."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A worker's work on a task, or how it has divided a time among phases.

    Attributes:
        at: when it began, in seconds since the epoch.
        seconds: how long it was.
        worker: whose time.
        task: which task, such as ``training/1/3``; empty for phases.
        outcome: how the work on the task ended: done, failed, returned, lost, or unfinished.
        phases: seconds by phase; empty for work on a task.
    """

    at: float
    seconds: float
    worker: int
    task: str = ""
    outcome: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)


def phase_shares(spans: Iterable[TimelineSpan]) -> dict[int, dict[str, float]]:
    """Return where the time of each worker has gone.

    Returns:
        Shares by phase, which add up to 1, by worker in order.
    """
    sums: dict[int, dict[str, float]] = {}
    for span in spans:
        own = sums.setdefault(span.worker, {}) if span.phases else {}
        for phase, spent in span.phases.items():
            own[phase] = own.get(phase, 0.0) + spent
    return {
        worker: {phase: spent / total for phase, spent in own.items()}
        for worker, own in sorted(sums.items())
        if (total := sum(own.values())) > 0
    }
