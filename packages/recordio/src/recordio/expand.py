"""From what a person names to the files that hold the data."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from recordio.errors import NoSuchData
from recordio.storage import filesystem, is_uri, local_path


def expand(patterns: str | Sequence[str]) -> list[str]:
    """The data files that patterns name, sorted within each pattern.

    A pattern is a path, a glob, a directory (every file in it) or a URI of these; several are
    separated by commas. Hidden files and those that begin with an underscore are passed over,
    unless a pattern names them in full.

    Raises:
        NoSuchData: a pattern matches nothing.
    """
    parts = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    found: list[str] = []
    for pattern in (part.strip() for part in parts):
        if not pattern:
            continue
        matches = _remote(pattern) if is_uri(pattern) else _local(local_path(pattern))
        found += [match for match in matches if match not in found]
    if not found:
        raise NoSuchData("no data file is named")
    return found


def _shown(name: str) -> bool:
    return not os.path.basename(name.rstrip("/")).startswith((".", "_"))


def _local(pattern: str) -> list[str]:
    if os.path.isdir(pattern):
        inside = (os.path.join(pattern, name) for name in sorted(os.listdir(pattern)))
        files = [path for path in inside if _shown(path) and not os.path.isdir(path)]
        if not files:
            raise NoSuchData(f"{pattern}: the directory holds no data file")
        return files
    if os.path.lexists(pattern):
        return [pattern]
    files = [
        path
        for path in sorted(glob.glob(pattern, recursive=True))
        if _shown(path) and not os.path.isdir(path)
    ]
    if not files:
        raise NoSuchData(f"{pattern}: nothing matches; {_nearest(pattern)}")
    return files


def _nearest(pattern: str) -> str:
    """The nearest directory that exists above a pattern, and what is in it."""
    directory = os.path.dirname(os.path.abspath(pattern))
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    names = sorted(os.listdir(directory))
    listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    return f"{directory} holds {listed}" if names else f"{directory} is empty"


def _remote(pattern: str) -> list[str]:
    system, path = filesystem(pattern)
    if system.isdir(path):
        paths = [entry for entry in system.ls(path, detail=False) if not system.isdir(entry)]
    elif any(sign in path for sign in "*?["):
        paths = [entry for entry in system.glob(path) if not system.isdir(entry)]
    else:
        paths = [path] if system.exists(path) else []
    files = sorted(system.unstrip_protocol(entry) for entry in paths if _shown(entry))
    if not files:
        raise NoSuchData(f"{pattern}: nothing matches")
    return files
