"""Writes the trace of a job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl.plugins.data import check_output, check_writable, scheme
from edl.plugins.errors import usage
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import open_regular, replace_file
from edl_watch.trace import origin


def check_trace(place: str, job: str) -> None:
    """Check that a trace can be written here; only an earlier trace of the same job is replaced.

    Raises:
        EdlError: USAGE, OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL.
    """
    if scheme(place):
        raise usage(
            f"a trace is a file of this machine, not {place}",
            where="--output",
            remedy="Name a path.",
        )
    if _is_trace_of(job, Path(place)):
        check_writable(Path(place).parent)
    else:
        check_output(place)


def _is_trace_of(job: str, path: Path) -> bool:
    """Return whether ``write_trace`` wrote this file; what it says of itself is at its end."""
    end = f',"otherData":{_encode(origin(job)).decode()}}}'.encode()
    try:
        with open_regular(path) as file:
            file.seek(-min(len(end), file.seek(0, os.SEEK_END)), os.SEEK_END)
            return not path.is_symlink() and file.read() == end
    except OSError:
        return False


def write_trace(path: Path, trace: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _encode(trace))
    except OSError as error:
        raise EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"the trace cannot be written: {error.strerror or error}",
            where=str(path),
            remedy="Name another file with --output.",
        ) from error


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
