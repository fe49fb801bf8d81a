"""An estimate of the number of different values, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable

KEPT = 1 << 14
"""Up to so many values the count is exact; above, its standard error is about 1 %."""

_SPACE = float(1 << 64)


class DistinctCount:
    """Keeps the smallest of the values' hashes: their density tells how many there are.

    This is the estimator of k minimum values: if the k-th smallest of n hashes, spread evenly over
    [0, 1), is x, then n is near (k - 1) / x.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._below = 1 << 64

    def add(self, hashes: Iterable[bytes]) -> None:
        """Count values by their hashes, of eight bytes each, evenly distributed."""
        below = self._below
        for octets in hashes:
            value = int.from_bytes(octets)
            if value < below:
                self._hashes.add(value)
                if len(self._hashes) > 2 * KEPT:
                    below = self._prune()

    @property
    def exact(self) -> bool:
        return self._below == 1 << 64 and len(self._hashes) <= KEPT

    @property
    def size(self) -> int:
        if self.exact:
            return len(self._hashes)
        self._prune()
        return round((KEPT - 1) * _SPACE / self._below)

    def _prune(self) -> int:
        """Drop all but the smallest hashes, and return the bound above which none are kept."""
        smallest = sorted(self._hashes)[:KEPT]
        self._hashes = set(smallest)
        self._below = smallest[-1] + 1
        return self._below
