"""The length of the coordinator's command log, as far as this worker knows."""

from __future__ import annotations

import threading


class LogIndex:
    """The number of commands in one coordinator's log, as far as this worker knows.

    Each incarnation has one of its own: the index of another one would name commands that do not
    come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.latest = 0

    def advance(self, index: int) -> None:
        """Advance to an index that the coordinator has named; several threads call this."""
        with self._lock:
            self.latest = max(self.latest, index)
