"""A build's log: numbered lines in a file, of which only the places are in memory."""

from __future__ import annotations

import json
import logging
import threading
from array import array
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from edl_builder.core.build import Phase
from edl_builder.core.build_status import LogLine
from edl_builder.core.identifiers import BuildId
from edl_builder.core.redaction import MAX_LINE_CHARS, printable

log = logging.getLogger(__name__)

_FULL = "the log is full; further lines are not kept"
_MAX_BATCH_BYTES = 1 << 18


class WrittenLines:
    """Lines in a file.

    Args:
        path: of the file.
        ends: where each line ends.
    """

    def __init__(self, path: Path, ends: array[int]) -> None:
        self._path = path
        self._ends = ends

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._ends)

    def after(self, number: int) -> list[LogLine]:
        """Return the next lines with higher numbers, in order, up to a limit."""
        count = len(self._ends)
        if not 0 <= number < count:
            return []
        begin = self._ends[number - 1] if number else 0
        last = number
        while last + 1 < count and self._ends[last + 1] - begin <= _MAX_BATCH_BYTES:
            last += 1
        try:
            with self._path.open("rb") as file:
                file.seek(begin)
                content = file.read(self._ends[last] - begin)
            return [_decode_line(line) for line in content.splitlines()]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []  # the build was forgotten meanwhile, or the disk has damaged its log


class BuildLog(WrittenLines):
    """The log of one build; its file stays open until ``close``.

    Args:
        path: of the file; what is in it already stays.
        nbytes: how large the file may become.
        clock: the time in words.
        redact: applied to every line.
    """

    def __init__(
        self, path: Path, nbytes: int, clock: Callable[[], str], redact: Callable[[str], str]
    ) -> None:
        super().__init__(path, _ends(path, is_checked=True))
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._left = nbytes - self._nbytes
        self._is_lossy = False
        self._file = path.open("ab", buffering=0)
        # A line that was cut off when the service ended would swallow the next one.
        self._file.truncate(self._nbytes)

    @property
    def _nbytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    def add(self, phase: Phase, text: str) -> None:
        """Append lines, unless the log is full or closed. A full disk ends no build."""
        with self._lock:
            for part in text.splitlines():
                if self._left < 0 or self._file.closed:
                    return
                line = self._line(phase, printable(self._redact(part[: 2 * MAX_LINE_CHARS])))
                left = self._left - len(line)
                if left < 0:
                    line = self._line(phase, _FULL)
                try:
                    self._write(line)
                except OSError as error:
                    if not self._is_lossy:
                        log.error("lines of %s are lost: %s", self._path, error)
                    self._is_lossy = True
                    return
                self._left = left

    def _write(self, line: bytes) -> None:
        """Write a whole line. Raises: OSError: nothing was written."""
        end = self._nbytes + len(line)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self._nbytes)
            raise
        self._ends.append(end)

    def _line(self, phase: Phase, text: str) -> bytes:
        line = LogLine(len(self._ends) + 1, self._clock(), phase, text[:MAX_LINE_CHARS])
        return json.dumps(asdict(line)).encode() + b"\n"

    def close(self) -> None:
        """Close the log for writing; it can still be read."""
        with self._lock:
            self._file.close()


class BuildLogs:
    """The logs of all builds: open while a build has not ended, in their files after that.

    Not thread-safe: its owner holds a lock. The logs themselves are.

    Args:
        path_of: the log of a build.
        nbytes, clock, redact: see ``BuildLog``.
    """

    def __init__(
        self,
        path_of: Callable[[BuildId], Path],
        nbytes: int,
        clock: Callable[[], str],
        redact: Callable[[str], str],
    ) -> None:
        self._path_of = path_of
        self._nbytes = nbytes
        self._clock = clock
        self._redact = redact
        self._open: dict[BuildId, BuildLog] = {}

    def get(self, build: BuildId) -> BuildLog | None:
        """Return the log of a build that has not ended."""
        return self._open.get(build)

    def open(self, build: BuildId) -> BuildLog:
        """Open the log of a build that has not ended, once."""
        if build not in self._open:
            self._open[build] = BuildLog(
                self._path_of(build), self._nbytes, self._clock, self._redact
            )
        return self._open[build]

    def close(self, build: BuildId) -> None:
        """Close the log of a build that has ended; its followers read on in the file."""
        if (written := self._open.pop(build, None)) is not None:
            written.close()

    def close_all(self) -> None:
        """Close all logs for writing."""
        for build in list(self._open):
            self.close(build)

    def find(self, build: BuildId) -> WrittenLines | None:
        """Return the log of a build; None if it was forgotten."""
        found = self._open.get(build)
        if found is not None:
            return found
        path = self._path_of(build)
        return WrittenLines(path, _ends(path)) if path.exists() else None


def _decode_line(line: bytes) -> LogLine:
    each = json.loads(line)
    return LogLine(each["number"], each["at"], Phase(each["phase"]), str(each["text"]))


def _ends(path: Path, *, is_checked: bool = False) -> array[int]:
    """Return where the complete lines of a file end."""
    found = array("Q")
    if not path.exists():
        return found
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") or (is_checked and not _is_line(line, number)):
                break
            end += len(line)
            found.append(end)
    return found


def _is_line(line: bytes, number: int) -> bool:
    try:
        return _decode_line(line).number == number
    except (ValueError, KeyError, TypeError):
        return False
