"""The audit log: one line of JSON for each call that changed something or was refused."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from edl_builder.core.call_record import CallRecord
from edl_runtime.timestamps import rfc3339

log = logging.getLogger(__name__)

_NBYTES = 16 << 20
_FILES = 4
_MAX_FIELD_CHARS = 300
_REFUSALS = 20
_REFUSALS_S = 1.0
"""Limit on the refusals written per interval; the next line has the number of the others."""


class AuditLog:
    """Writes ``audit.jsonl``, and keeps a few older ones next to it.

    Args:
        folder: where the files lie.
        clock: seconds since 1970.
        nbytes: how large a file becomes before the next is begun.
        files: how many there are, the newest included.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float],
        nbytes: int = _NBYTES,
        files: int = _FILES,
    ) -> None:
        self._path = folder / "audit.jsonl"
        self._clock = clock
        self._nbytes = nbytes
        self._files = files
        self._lock = threading.Lock()
        self._period = 0.0
        self._refusals = 0
        self._left_out = 0

    def __call__(self, record: CallRecord) -> None:
        """Record a call. A full disk ends no call."""
        if not record.is_audited:
            return
        now = self._clock()
        with self._lock:
            if record.is_refusal and not self._may_write_refusal(now):
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
            try:
                self._write(_line(record, now, left_out))
            except OSError as error:
                self._left_out += left_out + 1
                log.error("the audit log cannot be written: %s", error)

    def _may_write_refusal(self, now: float) -> bool:
        if not 0 <= now - self._period < _REFUSALS_S:
            self._period, self._refusals = now, 0
        self._refusals += 1
        return self._refusals <= _REFUSALS

    def _write(self, line: str) -> None:
        if self._path.exists() and self._path.stat().st_size > self._nbytes:
            for number in range(self._files - 1, 0, -1):
                older = self._path_of(number - 1)
                if older.exists():
                    older.replace(self._path_of(number))
        with open(self._path, "a", encoding="ascii", opener=_private) as file:
            file.write(line)

    def _path_of(self, number: int) -> Path:
        return self._path.with_suffix(f".{number}.jsonl") if number else self._path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _line(record: CallRecord, now: float, left_out: int) -> str:
    found: dict[str, object] = {
        "at": rfc3339(now),
        "tenant": record.tenant,
        "method": record.method.rpartition("/")[2],
        "peer": record.peer,
        "status": record.status,
        "seconds": round(record.seconds, 3),
        # What a caller has written; JSON in ASCII has neither line ends nor escapes in it.
        **{name: text[:_MAX_FIELD_CHARS] for name, text in record.about.items()},
    }
    if left_out:
        found["refusals_left_out"] = left_out
    return json.dumps(found, ensure_ascii=True) + "\n"
