"""The file that reserves a job's output: next to it, with the directory of the job in it.

Masters hold it (``edl_master.adapters.output_reservation``). The process that ends a job for good
removes it: the master, or the client if the master was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_SUFFIX = ".edl-reserved"

MAX_NAME_BYTES = 150
"""Bytes of an output's name. Until it is whole, a model has a longer name, with that of the job;
file systems allow 255."""


def path_of(output: str) -> Path | None:
    """Return the reservation of an output; None in a store, where nothing is reserved."""
    place = output.removeprefix("file://")
    if not place or "://" in place:
        return None
    return Path(place).with_name(f".{Path(place).name}{_SUFFIX}")


def output_of(path: Path) -> Path:
    """Return the output that a reservation reserves."""
    return path.with_name(path.name.removeprefix(".").removesuffix(_SUFFIX))


def write(held: int, job_dir: Path) -> None:
    """Name the job in an open reservation. Raises: OSError: it cannot be written."""
    os.ftruncate(held, 0)
    os.pwrite(held, json.dumps({"job_dir": str(job_dir)}).encode(), 0)


def owner(held: int) -> Path | None:
    """Read the directory of the job in an open reservation; None if it is new or damaged."""
    try:
        return Path(json.loads(os.pread(held, 4096, 0))["job_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def release(output: str, job_dir: Path) -> None:
    """Remove the reservation of a job whose masters have all ended."""
    path = path_of(output)
    if path is None:
        return
    with contextlib.suppress(OSError), path.open() as file:
        if owner(file.fileno()) == job_dir.absolute():
            path.unlink()
