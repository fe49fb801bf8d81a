"""A job's events: numbered without gaps, on disk one per line, and read by watchers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import json_format

from edl_master.adapters.job_directory import to_json
from edl_master.adapters.storage_errors import storage_error
from edl_proto.v1.job_pb2 import Event
from edl_runtime.timestamps import rfc3339

log = logging.getLogger(__name__)

# Enough for clients that watch; older events are read from the file.
_REMEMBERED = 4096


class EventLog:
    """The events of a job, over all incarnations of its master.

    ``add`` only remembers; ``flush`` writes, so that no decision waits for a disk.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, continue after its last event, and cut off a line that was torn.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        self._path = path
        try:
            self._file = path.open("a+b", buffering=0)
            whole, last = _last_number(path)
            self._file.truncate(whole)
        except OSError as error:
            raise storage_error(error, path) from error
        self._changed = threading.Condition()
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)
        self._unwritten: list[Event] = []
        self._number = last
        self._closed = False
        self._flushing = threading.Lock()

    def add(self, event: Event) -> None:
        """Remember an event; its number is given here."""
        with self._changed:
            self._number += 1
            event.number = self._number
            self._recent.append(event)
            self._unwritten.append(event)
            self._changed.notify_all()

    def flush(self) -> None:
        """Write what was added. Raises: EdlError: OUTPUT_UNWRITABLE or DISK_FULL."""
        with self._flushing:
            with self._changed:
                events, self._unwritten = self._unwritten, []
            lines = "".join(to_json(event) + "\n" for event in events).encode()
            try:
                size = os.fstat(self._file.fileno()).st_size
                try:
                    while lines:
                        lines = lines[self._file.write(lines) :]
                except OSError:
                    self._file.truncate(size)  # no half lines
                    raise
            except OSError as error:
                with self._changed:
                    self._unwritten[:0] = events  # the disk may have space again
                raise storage_error(error, self._path) from error

    def after(self, number: int, limit: int = 1000) -> list[Event]:
        """Return up to ``limit`` events with numbers above ``number``, oldest first."""
        with self._changed:
            remembered = self._recent[0].number if self._recent else self._number + 1
            if number + 1 >= remembered:
                skip = number + 1 - remembered
                return [self._recent[i] for i in range(skip, min(len(self._recent), skip + limit))]
        self.flush()
        return read_events(self._path, number, limit)

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait until there is an event above ``number``; False if there is none, or none any more.

        After ``close`` it does not wait.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._number <= number and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._number > number

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Write everything, and let watchers go. Nothing is added after this.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.flush()


def read_events(path: Path, after: int, limit: int) -> list[Event]:
    """Return up to ``limit`` events of a file with numbers above ``after``, oldest first.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    found: list[Event] = []
    for event in _read(path):
        if event.number > after:
            found.append(event)
            if len(found) == limit:
                break
    return found


def make_event(kind: str, severity: str, message: str, facts: dict[str, str], at_s: float) -> Event:
    """Return an event that happens now, ``at_s`` seconds after the job started."""
    return Event(
        at=rfc3339(time.time()),
        at_s=at_s,
        kind=kind,
        severity=severity,
        message=message,
        facts=facts,
    )


def _read(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for line in file:
            try:
                yield json_format.Parse(line, Event())
            except (json_format.ParseError, UnicodeDecodeError) as error:
                log.warning("%s: a line is not an event: %s", path, error)


def _last_number(path: Path) -> tuple[int, int]:
    """Return the size of the file without a torn last line, and the number of its last event."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - (1 << 20)), os.SEEK_SET)
        tail = file.read()
    whole = size - (len(tail) - (tail.rfind(b"\n") + 1))
    for line in reversed(tail[: tail.rfind(b"\n") + 1].splitlines()):
        try:
            return whole, json_format.Parse(line, Event()).number
        except (json_format.ParseError, UnicodeDecodeError):
            continue
    return whole, 0
