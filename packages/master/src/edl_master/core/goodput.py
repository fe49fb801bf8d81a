"""Goodput: the share of the workers' time that trained the model, and where the rest went.

Every second of every wanted worker is in exactly one category, so that the categories always add
up to the time that was wanted. Time whose result is lost later moves to another category.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class TimeCategory(StrEnum):
    """Where a wanted worker's time goes; all categories but the first are losses."""

    PRODUCTIVE = "productive"
    """Held a task whose result counts."""
    STARTING = "starting"
    """First instance of a worker: process, imports, model."""
    RESTARTING = "restarting"
    """Later instances, and time without a master."""
    REDONE = "redone"
    """Held a task whose result was lost and computed again."""
    WAITING = "waiting"
    """Ready, without a task to do."""
    STALLED = "stalled"
    """Lost, or suspected to be stalled."""
    CHECKPOINT = "checkpoint"
    """Paused while the parameters were copied for a snapshot or checkpoint."""


class Goodput:
    """Worker seconds by category."""

    def __init__(self) -> None:
        self._spent: dict[TimeCategory, float] = dict.fromkeys(TimeCategory, 0.0)

    def add(self, seconds: float, workers: Mapping[TimeCategory, int]) -> None:
        """Add ``seconds`` for each of the workers, counted by category."""
        for reason, count in workers.items():
            self._spent[reason] += seconds * count

    def reclassify(self, reason: TimeCategory, seconds: float) -> None:
        """Move seconds that had counted as productive to another category."""
        seconds = max(0.0, min(seconds, self._spent[TimeCategory.PRODUCTIVE]))
        self._spent[TimeCategory.PRODUCTIVE] -= seconds
        self._spent[reason] += seconds

    def recover(self, reason: TimeCategory, seconds: float) -> None:
        """Move seconds that were lost to what was productive."""
        seconds = min(seconds, self._spent[reason])
        self._spent[reason] -= seconds
        self._spent[TimeCategory.PRODUCTIVE] += seconds

    @property
    def productive_s(self) -> float:
        """Worker seconds in work that counted."""
        return self._spent[TimeCategory.PRODUCTIVE]

    @property
    def wanted_s(self) -> float:
        """Worker seconds that were wanted."""
        return sum(self._spent.values())

    @property
    def ratio(self) -> float:
        """Productive / wanted, 0 to 1; 0 before the beginning."""
        wanted_s = self.wanted_s
        return self.productive_s / wanted_s if wanted_s > 0 else 0.0

    @property
    def lost_s(self) -> dict[str, float]:
        """The worker seconds lost by reason; all reasons are present."""
        return {reason.value: s for reason, s in self._spent.items() if reason is not _GOOD}

    def snapshot(self) -> dict[str, Any]:
        """Return what survives the master as JSON-able values."""
        return {reason.value: seconds for reason, seconds in self._spent.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved."""
        self._spent = {reason: float(saved.get(reason.value, 0.0)) for reason in TimeCategory}


_GOOD = TimeCategory.PRODUCTIVE
