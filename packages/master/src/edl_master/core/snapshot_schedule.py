"""When the job's position is to be kept for a master that may have to go on from it."""

from __future__ import annotations

SHARE = 20.0
"""SnapshotSchedule may take a twentieth of the time: what takes a second is done every twenty."""

RETRY_S = 1.0
"""While there is nothing to keep yet: before the first worker has described its model."""


class SnapshotSchedule:
    """Asks for a snapshot from time to time.

    Args:
        every_s: the time between two, when keeping takes next to none; 0: never.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_at = 0.0
        self._kept_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to take a snapshot now; when asked again, the answer is no for a while."""
        if self._every_s <= 0 or now < self._due_at:
            return False
        # The first one as soon as there is something to keep; then one at a time.
        self._due_at = now + (RETRY_S if self._kept_at is None else self._every_s)
        return True

    def kept(self, seconds: float, now: float) -> None:
        """A snapshot is on the disk; writing it took so long."""
        self._kept_at = now
        self._due_at = now + max(self._every_s, SHARE * seconds)
