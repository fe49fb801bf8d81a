"""Finds the numbers that a conversion has given to the texts of labels."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from recordio.storage.files import local_path
from recordio.storage.stores import is_uri

_LABELS = "labels.json"
_SPLIT_PARTS = ("train", "test")
_MAX_CLASSES = 10_000
_MAX_BYTES = 1 << 20


def read_class_numbers(uri: str) -> tuple[tuple[str, int], ...]:
    """Return texts and numbers of the labels of a file; empty if they are not known.

    ``edl data convert`` writes them next to the records. Objects in stores are not looked at.
    """
    if is_uri(uri):
        return ()
    path = Path(local_path(uri))
    places = [path.with_suffix(f".{_LABELS}"), path.with_name(_LABELS)]
    if path.parent.name in _SPLIT_PARTS:
        places.append(path.parent.with_name(_LABELS))
    return next(filter(None, (_read(*_identify(place)) for place in places)), ())


def _identify(path: Path) -> tuple[Path, int, int]:
    """Return a path with what changes when its file does."""
    try:
        found = path.stat()
    except OSError:
        return path, 0, 0
    return path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)  # a folder may have thousands of files
def _read(path: Path, changed_ns: int, size: int) -> tuple[tuple[str, int], ...]:
    if not 0 < size <= _MAX_BYTES:
        return ()
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return ()
    if not isinstance(found, dict) or len(found) > _MAX_CLASSES:
        return ()
    if any(not isinstance(number, int) or isinstance(number, bool) for number in found.values()):
        return ()  # of the user
    return tuple(sorted(found.items()))
