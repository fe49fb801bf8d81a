"""Follows a stream: what its source discovers becomes the job's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import recordio
from edl_master.control.job_controller import JobController
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.windows import Split, SplitsDiscovered

log = logging.getLogger(__name__)

_POLL_S = 0.5
"""Between two looks for new files: a fraction of the seconds in which a record should train."""


class Source(Protocol):
    """The source of a stream."""

    def discover(self) -> tuple[tuple[Split, ...], list[LogEvent]]:
        """Return new splits, and what users should know of them."""

    def forget(self, before: int) -> None:
        """Forget the splits with smaller numbers."""


class StreamFollower:
    """Passes the splits of a source on to the job, until the job is over.

    Args:
        source: of the splits.
        splits: that an earlier master has discovered, or the start of this one.
        controller: of the job.
        record: takes events for users.
    """

    def __init__(
        self,
        source: Source,
        splits: tuple[Split, ...],
        controller: JobController,
        record: Callable[[LogEvent], None],
    ) -> None:
        self._source = source
        self._splits = splits
        self._controller = controller
        self._record = record
        self._is_away = False

    def follow(self, over: threading.Event) -> None:
        """Follow the stream until the event is set.

        Raises:
            EdlError: a file cannot be used.
        """
        self._controller.handle(SplitsDiscovered(self._splits))
        while not over.wait(_POLL_S):
            while (splits := self._discover()) and not over.is_set():
                self._controller.handle(SplitsDiscovered(splits))
            self._source.forget(self._controller.oldest_split)

    def _discover(self) -> tuple[Split, ...]:
        """Return new splits; none while the source cannot be asked, which one event says."""
        try:
            splits, notes = self._source.discover()
        except (recordio.UnreadableFile, OSError) as error:
            log.warning("the stream cannot be followed: %s", error)
            if not self._is_away:
                self._is_away = True
                line = f"The stream cannot be followed now: {error}. edl tries again."
                self._record(LogEvent("StreamAway", line, Severity.WARNING))
            return ()
        if self._is_away:
            self._is_away = False
            self._record(LogEvent("StreamBack", "The stream can be followed again."))
        for note in notes:
            self._record(note)
        return splits
