"""The entry points of installed distributions whose groups begin with ``edl.``.

They are read here, since importing ``importlib.metadata`` takes as long as the rest of
``edl --help``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name

_SUFFIX = ".dist-info"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An object that a distribution offers under a name.

    Attributes:
        target: the object, as ``package.module:name``.
        distribution: the name of the distribution, with dashes, and its version.
    """

    group: str
    name: str
    target: str
    distribution: str
    version: str

    def load(self) -> object:
        """Import the object."""
        return resolve_name(self.target)


@cache
def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return all entry points of a group, sorted by name and distribution."""
    found = (entry for entry in _read_all() if entry.group == group)
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.distribution)))


def forget() -> None:
    """Read the entry points again when they are asked for, as ``sys.path`` has changed."""
    find_entry_points.cache_clear()
    _read_all.cache_clear()


@cache
def _read_all() -> tuple[EntryPoint, ...]:
    seen: set[str] = set()
    found: list[EntryPoint] = []
    for folder in dict.fromkeys(sys.path):
        for place in _list_distributions(folder):
            name, _, version = os.path.basename(place).removesuffix(_SUFFIX).partition("-")
            name = re.sub(r"[-_.]+", "-", name).lower()
            if name not in seen:  # as for modules, the first one of a name counts
                seen.add(name)
                found += _read(os.path.join(place, "entry_points.txt"), name, version)
    return tuple(found)


def _list_distributions(folder: str) -> list[str]:
    try:
        names = os.listdir(folder or ".")
    except OSError:  # such as a path of Python that does not exist, or is an archive
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(_SUFFIX)]


def _read(file: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    try:
        with open(file, encoding="utf-8") as lines:
            text = lines.read()
    except (OSError, UnicodeDecodeError):
        return
    group = ""
    for line in text.splitlines() if "[edl." in text else ():
        if line.startswith("["):
            group = line.strip(" []")
        elif group.startswith("edl.") and "=" in line:
            name, _, target = (part.strip() for part in line.partition("="))
            yield EntryPoint(group, name, target, distribution, version)
