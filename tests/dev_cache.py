"""Where ``./dev`` keeps what takes long to get, for all clones and runs on a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("EDL_DEV_CACHE") or Path(base) / "edl-dev")


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Let one process at a time make the item of this name; others wait, and then find it."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
