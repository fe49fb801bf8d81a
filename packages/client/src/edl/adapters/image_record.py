"""The images that jobs of this user were given, by their digests: ``$EDL_HOME/images``.

A trained model names the image that trained it. If a job of this user has run in it before, running
it again gives its code nothing that it has not had.
"""

from __future__ import annotations

import os
from pathlib import Path

from edl_runtime.local import job_directory
from edl_runtime.local.ownership import is_own_file


def add(image: str) -> None:
    """Record an image, once. Raises: OSError: the record cannot be written."""
    if image in read():
        return
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whatever the umask: what others may write is not believed.
    with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o644)) as record:
        record.write(f"{image}\n")


def read() -> frozenset[str]:
    """Return all recorded images, without those that another user may have recorded."""
    try:
        with _path().open() as record:
            if not is_own_file(os.fstat(record.fileno())):
                return frozenset()
            return frozenset(record.read().splitlines())
    except OSError:
        return frozenset()


def _path() -> Path:
    return job_directory.home() / "images"
