"""Logs of instances: one file a worker, in which its instances write one after the other."""

from __future__ import annotations

import os
import time
from pathlib import Path

from edl_master.core.identifiers import WorkerId
from edl_runtime.local.log_notices import without_notices
from edl_runtime.monitoring.log_lines import readable

_TAIL_LINES = 40
_TAIL_BYTES = 32 << 10


def path_of(logs: Path, worker: WorkerId, kind: str = "worker") -> Path:
    """Return where a worker's instances write; a ``server`` is a parameter server."""
    return logs / f"{kind}-{worker}.log"


def heading(worker: WorkerId, attempt: int) -> bytes:
    """Return the line above what an instance writes."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return f"--- {at} worker {worker}, start {attempt + 1}\n".encode()


def append(path: Path, worker: WorkerId, attempt: int, text: str) -> str:
    """Append all that an instance wrote; returns the last lines."""
    with path.open("ab") as output:
        output.write(heading(worker, attempt))
        start = output.tell()
        output.write(text.encode())
    return tail(path, start)


def log_summary(kind: str, log_tail: str) -> str:
    """Summarize the log of an instance that does not register in a clause.

    Args:
        kind: such as ``process``.
        log_tail: the last lines that it wrote.
    """
    lines = [line for line in without_notices(log_tail.splitlines()) if line.strip()]
    if not lines:
        return f"its {kind} has written nothing to its log"
    return f"the last line of its log: {lines[-1].strip()}"


def tail(path: Path, start: int) -> str:
    """Return the last lines of an instance, whose part of the file begins at ``start``."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            content = file.read(_TAIL_BYTES)
    except OSError as error:
        return f"(no log: {error})"
    lines = without_notices(readable(content.decode(errors="replace")).splitlines())
    return "\n".join(lines[-_TAIL_LINES:])
