"""The folders of releases: trained models with numbers for names."""

from __future__ import annotations

from collections.abc import Iterable


def read_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the releases among the names of folders, ascending."""
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())
