"""Goodput: of all the time that workers were wanted for, how much trained, and what took the rest.

Every second of every wanted worker is in exactly one account, so that the accounts always add up
to the time that was wanted. What turns out later to have been in vain moves from one to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class TimeCategory(StrEnum):
    """What a wanted worker's time went into; all but the first are losses."""

    PRODUCTIVE = "productive"
    """Held a task, and what came of it counts."""
    STARTING = "starting"
    """First body of a worker: process, imports, model."""
    RESTARTING = "restarting"
    """Later bodies, and time without a master."""
    REDONE = "redone"
    """Held a task, but what came of it was lost and computed again."""
    WAITING = "waiting"
    """Ready, without a task to do."""
    STALLED = "stalled"
    """Lost, or suspected to hang."""
    CHECKPOINT = "checkpoint"
    """Held up while parameters were copied for a snapshot or checkpoint."""


class Goodput:
    """The accounts, in worker seconds."""

    def __init__(self) -> None:
        self._spent: dict[TimeCategory, float] = dict.fromkeys(TimeCategory, 0.0)

    def spend(self, seconds: float, workers: Mapping[TimeCategory, int]) -> None:
        """So many workers spent the last ``seconds`` so."""
        for reason, count in workers.items():
            self._spent[reason] += seconds * count

    def take_off(self, reason: TimeCategory, seconds: float) -> None:
        """Seconds that had been taken for productive were not."""
        seconds = max(0.0, min(seconds, self._spent[TimeCategory.PRODUCTIVE]))
        self._spent[TimeCategory.PRODUCTIVE] -= seconds
        self._spent[reason] += seconds

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
        """Worker seconds lost, by reason; every reason is there."""
        return {reason.value: s for reason, s in self._spent.items() if reason is not _GOOD}

    def snapshot(self) -> dict[str, Any]:
        """Return what outlives the master as JSON-able values."""
        return {reason.value: seconds for reason, seconds in self._spent.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved."""
        self._spent = {reason: float(saved.get(reason.value, 0.0)) for reason in TimeCategory}


_GOOD = TimeCategory.PRODUCTIVE
