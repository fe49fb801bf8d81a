"""A build's log: numbered lines, in memory for subscribers, and on disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from edl_builder.core.build_status import LogLine
from edl_builder.core.names import Phase

_FULL = "the log is full; further lines are not kept"


class BuildLog:
    """The log of one build.

    Args:
        path: of the file; what is in it already stays.
        nbytes: how large it may become.
        clock: the time in words.
        redact: applied to every line.
    """

    def __init__(
        self, path: Path, nbytes: int, clock: Callable[[], str], redact: Callable[[str], str]
    ) -> None:
        self._path = path
        self._left = nbytes
        self._clock = clock
        self._redact = redact
        self._lock = threading.Lock()
        self._full = False
        self._lines = _read(path)
        self._left -= sum(_weight(line) for line in self._lines)

    def add(self, phase: Phase, text: str) -> None:
        """Write lines down; nothing once the log is full."""
        with self._lock:
            if self._full:
                return
            for part in text.splitlines():
                line = self._line(phase, self._redact(part))
                self._left -= _weight(line)
                if self._left < 0:
                    self._full = True
                    line = self._line(phase, _FULL)
                self._lines.append(line)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(line)) + "\n")
                if self._full:
                    return

    def _line(self, phase: Phase, text: str) -> LogLine:
        return LogLine(len(self._lines) + 1, self._clock(), phase, text)

    def after(self, number: int) -> list[LogLine]:
        """Lines with higher numbers, in order."""
        with self._lock:
            return self._lines[number:]


def _weight(line: LogLine) -> int:
    return len(line.text.encode()) + 32


def _read(path: Path) -> list[LogLine]:
    if not path.exists():
        return []
    found: list[LogLine] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                each = json.loads(text)
                line = LogLine(each["number"], each["at"], Phase(each["phase"]), str(each["text"]))
            except (ValueError, KeyError, TypeError):
                break  # cut off when the service ended
            if line.number != len(found) + 1:
                break
            found.append(line)
    # What cannot be read would hide what is added.
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(json.dumps(asdict(line)) + "\n" for line in found))
    temporary.replace(path)
    return found
