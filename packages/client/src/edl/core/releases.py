"""The numbers of releases: models of a running job, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence


def next_number(numbers: Sequence[int]) -> int:
    """Return the number of the next release: numbers are not used again while any is there."""
    return max(numbers, default=0) + 1


def find_outdated(numbers: Sequence[int], keep: int) -> list[int]:
    """Return the releases to remove, so that ``keep`` are left; with 0, none."""
    return sorted(numbers)[:-keep] if keep else []
