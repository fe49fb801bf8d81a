"""Compares numbers that two processors have computed from the same data."""

from __future__ import annotations

import math
from collections.abc import Sequence

_RELATIVE, _ABSOLUTE = 1e-4, 1e-7


def are_close(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether both have the same numbers, but for the last digits."""
    return len(some) == len(others) and all(
        math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        for a, b in zip(some, others, strict=True)
    )
