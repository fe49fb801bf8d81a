"""Folders in which conversions prepare their output; those of killed conversions are removed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MARK = "edl-"
_FRESH_S = 60.0
"""Younger ones may be of a conversion that has not locked its own yet."""


@contextmanager
def draft(output: Path) -> Iterator[Path]:
    """Yield a hidden folder next to the output, on the same disk; it is removed unless renamed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(output)
    place = Path(tempfile.mkdtemp(prefix=f".{output.name}.{_MARK}", dir=output.parent))
    held = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place.chmod(0o755)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(held)


def is_held(place: Path) -> bool:
    """Return whether a living process uses a draft; True, too, if the file system has no locks."""
    try:
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(held)
    return False


def _remove_abandoned(output: Path) -> None:
    name = re.compile(rf"\.{re.escape(output.name)}\.{_MARK}\w{{8}}")
    for entry in os.scandir(output.parent):
        if not name.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _FRESH_S:
                continue
            held = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(held)
