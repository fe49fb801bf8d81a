"""Follows a stream: what its source discovers becomes the job's."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from edl_master.core.effects import LogEvent, Severity
from edl_master.core.windows import Split, SplitsDiscovered
from edl_proto.errors import EdlError, ErrorCode

log = logging.getLogger(__name__)

POLL_S = 0.5
"""Between two looks for new files: a fraction of the seconds in which a record should train."""

_SNAPSHOTS = 8
"""A damaged snapshot makes the next master begin with an earlier one."""

MAX_WAITING = 10_000_000
"""Records that wait to be trained before the source is asked for more."""


class SplitSource(Protocol):
    """The source of a stream."""

    def discover(self) -> tuple[tuple[Split, ...], list[LogEvent]]:
        """Return new splits, and what users should know of them."""

    def forget(self, before: int) -> None:
        """Forget the splits with smaller numbers."""

    def compact(self, before: int) -> None:
        """Make the log smaller by the splits with smaller numbers, which no master needs."""


class StreamingJob(Protocol):
    """The job whose data the stream is, behind its lock."""

    def find_oldest_split(self) -> int | None:
        """Return the first split that the job has not done with; None: it takes no more."""

    def count_waiting(self) -> int:
        """Return the number of records that the job knows and has not trained."""

    def handle(self, event: SplitsDiscovered) -> object:
        """Take the event."""


class StreamFollower:
    """Passes the splits of a source on to the job, until the job takes no more.

    Args:
        source: of the splits.
        splits: that an earlier master has discovered, or the start of this one.
        job: gets the splits.
        record: takes events for users.
        poll_s: seconds between two looks for new splits.
    """

    def __init__(
        self,
        source: SplitSource,
        splits: tuple[Split, ...],
        job: StreamingJob,
        record: Callable[[LogEvent], None],
        poll_s: float = POLL_S,
    ) -> None:
        self._source = source
        self._splits = splits
        self._job = job
        self._record = record
        self._poll_s = poll_s
        self._is_away = False
        self._needed: deque[int] = deque([0], maxlen=_SNAPSHOTS)

    def note_snapshot(self, oldest_split: int) -> None:
        """Note that a snapshot was written, which needs no split with a smaller number."""
        self._needed.append(oldest_split)

    def follow(self, over: threading.Event) -> None:
        """Follow the stream until the event is set, or the job has been told to end it.

        Raises:
            EdlError: a file is damaged, or lacks fields that the others have.
        """
        self._job.handle(SplitsDiscovered(self._splits))
        while not over.wait(self._poll_s) and (oldest := self._job.find_oldest_split()) is not None:
            self._source.forget(oldest)
            self._source.compact(self._needed[0])
            while not over.is_set() and self._job.count_waiting() < MAX_WAITING:
                if not (splits := self._discover()):
                    break
                self._job.handle(SplitsDiscovered(splits))

    def _discover(self) -> tuple[Split, ...]:
        """Return new splits; none while the source cannot be asked, which one event says."""
        try:
            splits, notes = self._source.discover()
        except (OSError, EdlError) as error:
            if isinstance(error, EdlError) and error.code is not ErrorCode.DATA_UNREADABLE:
                raise
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
