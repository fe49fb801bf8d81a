"""Clipping of gradients: by value, by the norm of each variable, by the norm of all together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ClipValue:
    """Each element is clipped to ``[-limit, limit]``."""

    limit: float


@dataclass(frozen=True, slots=True)
class ClipNorm:
    """A variable's gradient is scaled down so that its L2 norm is at most ``limit``."""

    limit: float


@dataclass(frozen=True, slots=True)
class ClipGlobalNorm:
    """All gradients are scaled down alike so that their joint L2 norm is at most ``limit``."""

    limit: float


Clipping: TypeAlias = ClipValue | ClipNorm | ClipGlobalNorm | None


def shrink(sum_of_squares: float, limit: float) -> float:
    """Return the factor, at most 1, that reduces a gradient's norm to at most ``limit``."""
    return limit / max(math.sqrt(sum_of_squares), limit)


def shared_sums(clipping: Clipping, tables: int) -> int:
    """Return how many sums of squares it takes that run over what several servers have.

    The norm of all variables is one. That of an embedding table's gradient runs over its rows,
    which are everywhere; a variable that is clipped by its norm is on one server as a whole.
    """
    match clipping:
        case ClipGlobalNorm():
            return 1
        case ClipNorm():
            return tables
        case _:
            return 0
