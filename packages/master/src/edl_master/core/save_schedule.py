"""When the job's position is saved, for a master that may have to continue from it."""

from __future__ import annotations

from edl_master.core.identifiers import Version

SHARE = 20.0
"""Snapshots may take a twentieth of the time: one that takes a second is due every twenty."""

RETRY_S = 1.0
"""While there is nothing to save: before the first worker has described its model."""


class SnapshotSchedule:
    """Says when the next snapshot is due.

    Args:
        every_s: seconds between two snapshots, if writing them takes next to no time; 0: never.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_at = 0.0
        self._completed_at: float | None = None
        self.saved_version: Version | None = None
        """Parameter version of the newest one that is complete; None: there is none."""

    def is_due(self, now: float) -> bool:
        """Whether to take a snapshot now; after a yes, the answer is no for a while."""
        if self._every_s <= 0 or now < self._due_at:
            return False
        # The first one as soon as there is something to save; then one at a time.
        self._due_at = now + (RETRY_S if self._completed_at is None else self._every_s)
        return True

    def completed(self, version: Version, seconds: float, now: float) -> None:
        """A snapshot is on the disk; it took ``seconds`` to write."""
        self.saved_version = version
        self._completed_at = now
        self._due_at = now + max(self._every_s, SHARE * seconds)
