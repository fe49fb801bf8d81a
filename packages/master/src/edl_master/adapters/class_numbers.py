"""Finds the numbers that a conversion has given to the texts of labels."""

from __future__ import annotations

import json
import logging
import posixpath
from functools import lru_cache
from pathlib import Path

from edl_runtime.public_settings import without_passwords
from recordio.kafka.addresses import is_kafka
from recordio.storage.files import local_path
from recordio.storage.stores import filesystem, is_uri

log = logging.getLogger(__name__)

_LABELS = "labels.json"
_SPLIT_PARTS = ("train", "test")
_PART = "part-"
"""How the names of the files of a data set begin."""
_MAX_CLASSES = 10_000
_MAX_BYTES = 1 << 20


def read_class_numbers(uri: str) -> tuple[tuple[str, int], ...]:
    """Return texts and numbers of the labels of a file; empty if they are not known.

    ``edl data convert`` writes them next to the records.
    """
    if is_kafka(uri):
        return ()
    if is_uri(uri):
        return next(filter(None, map(_read_stored, _stored_places(uri))), ())
    path = Path(local_path(uri))
    places = [path.with_suffix(f".{_LABELS}"), path.with_name(_LABELS)]
    if path.parent.name in _SPLIT_PARTS:
        places.append(path.parent.with_name(_LABELS))
    return next(filter(None, (_read(*_identify(place)) for place in places)), ())


def _stored_places(uri: str) -> list[str]:
    """Return where the numbers for an object may be; parts of a data set share theirs."""
    folder, name = posixpath.split(uri)
    places = [] if name.startswith(_PART) else [f"{posixpath.splitext(uri)[0]}.{_LABELS}"]
    places.append(f"{folder}/{_LABELS}")
    parent, last = posixpath.split(folder)
    return [*places, f"{parent}/{_LABELS}"] if last in _SPLIT_PARTS else places


@lru_cache(maxsize=256)  # each object of a folder asks for the same
def _read_stored(place: str) -> tuple[tuple[str, int], ...]:
    try:
        system, path = filesystem(place)
        content = system.cat_file(path, start=0, end=_MAX_BYTES + 1) if system.exists(path) else b""
    except Exception as error:  # stores raise errors of many libraries
        log.warning("%s cannot be looked at: %s", without_passwords(place), error)
        return ()
    return _parse(bytes(content))


def _identify(path: Path) -> tuple[Path, int, int]:
    """Return a path with what changes when its file does."""
    try:
        found = path.stat()
    except OSError:
        return path, 0, 0
    return path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)  # a folder may have thousands of files
def _read(path: Path, changed_ns: int, size: int) -> tuple[tuple[str, int], ...]:
    try:
        return _parse(path.read_bytes() if size <= _MAX_BYTES else b"")
    except OSError:
        return ()


def _parse(content: bytes) -> tuple[tuple[str, int], ...]:
    """Return texts and numbers; nothing if the content is none of a conversion."""
    if not 0 < len(content) <= _MAX_BYTES:
        return ()
    try:
        found = json.loads(content)
    except ValueError:
        return ()
    if not isinstance(found, dict) or len(found) > _MAX_CLASSES:
        return ()
    if any(not isinstance(number, int) or isinstance(number, bool) for number in found.values()):
        return ()  # of the user
    return tuple(sorted(found.items()))
