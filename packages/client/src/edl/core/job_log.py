"""The lines that the processes of a job wrote: their sources, times, levels and order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge

from edl.core.quantities import parse_duration
from edl_runtime.monitoring.log_lines import LEVELS, LogEntry, parse
from edl_runtime.timestamps import parse_rfc3339

ERROR_LINES = 15
"""Lines of a log that an error quotes."""

_HEADING = re.compile(r"--- (\S+) (?:worker|server) \d+, start \d+")
_SEVERE = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|F\d{4} |.*: F \w+/")
"""How the last words of Python, of absl and of TensorFlow begin."""


@dataclass(frozen=True, slots=True)
class JobLogLine:
    """A line that a process of the job wrote.

    Attributes:
        source: ``master``, ``worker N`` or ``server N``.
        text: as it was written.
        at_s: when, in seconds since the epoch: of a line without a time that of the line before it
            of this source; 0.0 if there is none.
        level: one of ``LEVELS``; of a line without a level that of the line before.
        entry: what the line says, if edl wrote it; None: a library or a model file printed it.
    """

    source: str
    text: str
    at_s: float = 0.0
    level: str = "INFO"
    entry: LogEntry | None = None


@dataclass(frozen=True, slots=True)
class LogChoice:
    """A choice of lines of a job's logs.

    Attributes:
        role: ``master``, ``worker`` or ``server``; empty: all.
        worker: only this worker's; None: all.
        tail: only so many last lines of each log that exists; None: all.
    """

    role: str = ""
    worker: int | None = None
    tail: int | None = None

    def includes(self, source: str) -> bool:
        """Return whether the lines of a source are wanted."""
        if self.worker is not None:
            return source == f"worker {self.worker}"
        return self.role in ("", source.partition(" ")[0])


@dataclass(slots=True)
class LogReader:
    """A reader of the lines of one source, in their order."""

    source: str
    _at_s: float = field(default=0.0, init=False)
    _level: str = field(default="INFO", init=False)

    def read(self, text: str, at_s: float = 0.0) -> JobLogLine:
        """Return the next line.

        Args:
            at_s: when it was written, if the platform knows: for a line without a time.
        """
        entry = parse(text)
        if entry is not None:
            at_s, self._level = entry.at_s, entry.level
        elif heading := _HEADING.fullmatch(text):
            at_s, self._level = parse_rfc3339(heading[1]) or at_s, "INFO"
        elif _SEVERE.match(text):
            self._level = "ERROR"
        # The order of a source is that of its lines, whatever their clocks say.
        self._at_s = max(self._at_s, at_s)
        return JobLogLine(self.source, text, self._at_s, self._level, entry)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """A filter of the lines to show.

    Attributes:
        since_s: none from before, in seconds since the epoch.
        level: none below.
    """

    since_s: float = 0.0
    level: str = LEVELS[0]

    def shows(self, line: JobLogLine) -> bool:
        is_severe = LEVELS.index(line.level) >= LEVELS.index(self.level)
        return is_severe and line.at_s >= self.since_s


def merge_by_time(sources: Iterable[Iterable[JobLogLine]]) -> Iterator[JobLogLine]:
    """Return the lines of several sources by their times; those of one source keep their order."""
    return merge(*sources, key=lambda line: line.at_s)


def parse_since(text: str, now_s: float) -> float:
    """Parse a time, or a duration before now, into seconds since the epoch.

    Args:
        text: as ``15m``, or ``2026-11-24T04:00:00Z``; UTC if it names no offset.

    Raises:
        ValueError: it is neither; the message says how to write one.
    """
    if (at_s := parse_rfc3339(text)) is not None:
        return at_s
    try:
        return now_s - parse_duration(text)
    except ValueError:
        how = "write 15m for the last 15 minutes, or a time such as 2026-11-24T04:00:00Z"
        raise ValueError(f"{text!r} is neither a duration nor a time; {how}") from None
