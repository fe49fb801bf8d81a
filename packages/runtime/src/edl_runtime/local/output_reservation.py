"""The file that reserves a job's output: next to it, with the directory of the job in it.

Masters hold it (``edl_master.adapters.output_reservation``). Whoever ends a job for good removes
it, which is the client where a master was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_SUFFIX = ".edl-reserved"

LONGEST_NAME = 150
"""Bytes of an output's name. Until it is whole, a model has a longer name, with that of the job;
file systems allow 255."""


def path_of(output: str) -> Path | None:
    """The reservation of an output; None for a place in a store, where nothing is reserved."""
    place = output.removeprefix("file://")
    if not place or "://" in place:
        return None
    return Path(place).with_name(f".{Path(place).name}{_SUFFIX}")


def output_of(path: Path) -> Path:
    """The output that a reservation is of."""
    return path.with_name(path.name.removeprefix(".").removesuffix(_SUFFIX))


def write(held: int, job_dir: Path) -> None:
    """Name the job in an open reservation.

    Raises:
        OSError: it cannot be written.
    """
    os.ftruncate(held, 0)
    os.pwrite(held, json.dumps({"job_dir": str(job_dir)}).encode(), 0)


def owner(held: int) -> Path | None:
    """The directory of the job that an open reservation names; None if it is new or damaged."""
    try:
        return Path(json.loads(os.pread(held, 4096, 0))["job_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def release(output: str, job_dir: Path) -> None:
    """Remove what any master of a job has left: none of them continues."""
    path = path_of(output)
    if path is None:
        return
    with contextlib.suppress(OSError), path.open() as file:
        if owner(file.fileno()) == job_dir.absolute():
            path.unlink()
