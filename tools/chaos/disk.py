"""A small disk for checkpoints, which faults can fill without harm to anything else."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SIZE = "64m"


@contextlib.contextmanager
def small_disk(place: Path, *, mount: bool) -> Iterator[None]:
    """An empty folder at ``place``; with ``mount`` a disk of its own.

    Raises:
        RuntimeError: this user may not mount one.
    """
    place.mkdir(exist_ok=True)
    if not mount:
        yield
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "edl-chaos", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise RuntimeError(f"--disks needs root: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], timeout=30, check=False)
