"""Writes the trace of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl.adapters.preflight_checks import check_output
from edl.core.locations import scheme
from edl.core.problem import usage
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.files import replace_file


def check_trace(place: str) -> None:
    """Check that a trace can be written here, and that nothing exists here yet.

    Raises:
        EdlError: USAGE, OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL.
    """
    if scheme(place):
        raise usage(
            f"a trace is a file of this machine, not {place}",
            where="--output",
            remedy="Name a path.",
        )
    check_output(place)


def write_trace(path: Path, trace: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    content = json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"the trace cannot be written: {error.strerror or error}",
            where=str(path),
            remedy="Name another file with --output.",
        ) from error
