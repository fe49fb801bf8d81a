"""Expands patterns (paths, globs, directories, URIs) to data files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from recordio.errors import NoSuchData
from recordio.formats.detection import named_format
from recordio.kafka import topics
from recordio.kafka.addresses import is_kafka
from recordio.storage.files import local_path
from recordio.storage.stored_file import retry_transient
from recordio.storage.stores import filesystem, is_uri

_MAX_LISTED = 6
"""The number of files that a message lists."""


def expand(patterns: str | Sequence[str], *, retry_s: float = 0.0) -> list[str]:
    """Return the data files that patterns name, sorted within each pattern, each once.

    A pattern is a path, a glob, a directory or a URI of these. A comma has no special meaning.
    A topic of Kafka has the ranges of its partitions that are complete now.
    Of a directory, the files with a known ending count, or all if none has one. Files whose
    names begin with a dot or an underscore (hidden, temporary, markers) are skipped, unless a
    pattern names them in full.

    Args:
        patterns: one pattern, or several.
        retry_s: how long requests to a failing store are repeated, in seconds.

    Raises:
        NoSuchData: a pattern matches nothing; the message lists what its folder has instead.
        UnreadableFile: the scheme of a URI is unknown, its package is not installed, or its store
            cannot be reached.
    """
    found: dict[str, None] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not pattern.strip():
            continue
        if is_kafka(pattern):
            found.update(dict.fromkeys(topics.expand(pattern)))
            continue
        matches = (
            retry_transient(partial(_remote, pattern), pattern, retry_s=retry_s)
            if is_uri(pattern)
            else _local(local_path(pattern))
        )
        found.update(dict.fromkeys(matches))
    if not found:
        raise NoSuchData("no data file was given")
    return list(found)


def _data_files(paths: Iterable[str]) -> list[str]:
    """Return the files of a directory that hold data."""
    visible = sorted(path for path in paths if _is_visible(path))
    return [path for path in visible if named_format(path)] or visible


def _is_visible(path: str) -> bool:
    return not os.path.basename(path.rstrip("/")).startswith((".", "_"))


def _local(pattern: str) -> list[str]:
    pattern = os.path.expanduser(pattern)
    if os.path.isdir(pattern):
        try:
            inside = [os.path.join(pattern, name) for name in os.listdir(pattern)]
        except OSError as error:
            raise NoSuchData(f"{pattern}: {error.strerror}") from error
        files = _data_files(path for path in inside if not os.path.isdir(path))
        if not files:
            raise NoSuchData(f"{pattern}: the directory holds no data file; {_nearest(pattern)}")
        return files
    if os.path.lexists(pattern):
        return [pattern]
    matches = sorted(glob.glob(pattern, recursive=True))
    files = [path for path in matches if _is_visible(path) and not os.path.isdir(path)]
    if not files:
        raise NoSuchData(f"{pattern}: nothing matches; {_nearest(os.path.dirname(pattern))}")
    return files


def _nearest(directory: str) -> str:
    """Return the nearest directory that exists at or above a place, and its entries."""
    directory = os.path.abspath(directory)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    try:
        return _contents(directory, os.listdir(directory))
    except OSError as error:
        return f"{directory}: {error.strerror}"


def _contents(directory: str, names: Iterable[str]) -> str:
    names = sorted(name for name in names if not name.startswith("."))
    listed = ", ".join(names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED} more"
    return f"{directory} holds {listed}" if names else f"{directory} is empty"


def _remote(pattern: str) -> list[str]:
    system, path = filesystem(pattern)
    if system.isdir(path):
        entries = system.ls(path, detail=True)
        files = _data_files(entry["name"] for entry in entries if entry["type"] != "directory")
    elif system.exists(path):
        files = [path]
    elif any(sign in path for sign in "*?["):
        found = system.glob(path, detail=True).items()
        files = sorted(
            name for name, info in found if info["type"] != "directory" and _is_visible(name)
        )
    else:
        files = []
    if not files:
        raise NoSuchData(f"{pattern}: nothing matches; {_nearest_remote(system, path)}")
    return [str(system.unstrip_protocol(file)) for file in files]


def _nearest_remote(system: Any, path: str) -> str:
    try:
        return _list_remote(system, path)
    except Exception:  # a user who may read an object need not be allowed to list its folder
        return "the contents of its folder cannot be listed"


def _list_remote(system: Any, path: str) -> str:
    while path and not system.isdir(path):
        parent = str(system._parent(path))
        if parent == path:
            break
        path = parent
    names = (str(name).rstrip("/").rsplit("/", 1)[-1] for name in system.ls(path, detail=False))
    return _contents(str(system.unstrip_protocol(path)), names)
