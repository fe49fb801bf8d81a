"""Limits how often lines are written, so that a long job does not fill a terminal or a log."""

from __future__ import annotations

import time

ELAPSED_DIVISOR = 50
"""A line comes at most once in this part of the time so far: after an hour, every 72 seconds."""

_BURST = 20
"""So many events of a kind are shown before their rate is limited."""


class LineRateLimit:
    """Decides when another line is due: after a few seconds, and later ever more seldom.

    Args:
        every_s: least time between two lines.
        burst: number of lines that are due at once.
    """

    def __init__(self, every_s: float, burst: int = 1) -> None:
        self._every_s = every_s
        self._burst = burst
        self._began = self._next = time.monotonic()

    def is_due(self) -> bool:
        """Return whether a line may be written now; if so, it counts as written."""
        now = time.monotonic()
        if self._burst > 0:
            self._burst -= 1
        elif now < self._next:
            return False
        self._next = now + self.interval(now)
        return True

    def interval(self, now: float) -> float:
        """Time between two lines, in seconds.

        Args:
            now: of ``time.monotonic``.
        """
        return max(self._every_s, (now - self._began) / ELAPSED_DIVISOR)


class EventRateLimit:
    """A limit to how often events of frequent kinds are shown; all others always are."""

    _FREQUENT = frozenset(("EvaluationEnded", "CheckpointTaken"))

    def __init__(self, every_s: float = 5.0) -> None:
        self._limits = {kind: LineRateLimit(every_s, _BURST) for kind in self._FREQUENT}

    def is_due(self, kind: str) -> bool:
        """Return whether an event of this kind may be shown now; if so, it counts as shown."""
        limit = self._limits.get(kind)
        return limit is None or limit.is_due()
