"""Schedules for saving the job's position, for a master that may have to continue from it.

Both schedules request one save at a time. While a slow disk or object store still writes the last
one, another save would only add work, and every parameter server would keep a copy of the values
that change meanwhile.
"""

from __future__ import annotations

from edl_master.core.identifiers import Version, crosses

MIN_INTERVAL_FACTOR = 20.0
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
        self._pending = False
        self.saved_version: Version | None = None
        """Parameter version of the newest one that is complete; None: there is none."""

    def is_due(self, now: float) -> bool:
        """Return whether to take a snapshot now; after True, False until that one has ended."""
        if self._every_s <= 0 or self._pending or now < self._due_at:
            return False
        self._pending = True
        return True

    def record_completion(self, version: Version, seconds: float, now: float) -> None:
        """Record that a snapshot is on the disk; it took ``seconds`` to write."""
        self.saved_version = version
        self._pending = False
        self._due_at = now + max(self._every_s, MIN_INTERVAL_FACTOR * seconds)

    def record_skip(self, now: float) -> None:
        """Record that there was nothing to save yet: a snapshot is due as soon as there is."""
        self._pending = False
        self._due_at = now + RETRY_S


class CheckpointSchedule:
    """Says when the next checkpoint is due.

    Args:
        every_steps: updates of the parameters between two checkpoints; 0: never.
    """

    def __init__(self, every_steps: int) -> None:
        self._every_steps = every_steps
        self._pending = False
        self._missed = False

    def is_due(self, before: Version, after: Version) -> bool:
        """Return whether to take a checkpoint after an update from one version to another.

        After True, it returns False until that one has ended. If one became due meanwhile, it
        is due at the next update.
        """
        self._missed |= crosses(self._every_steps, before, after)
        if self._pending or not self._missed:
            return False
        self._pending, self._missed = True, False
        return True

    def record_end(self) -> None:
        """Record that a checkpoint is complete, or that its storage did not take it."""
        self._pending = False
