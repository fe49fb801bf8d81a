"""Specifications of tables: the size of rows, initial values, admission and expiry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from edl_master.core.parameters.layout_error import LayoutError

MAX_DIM = 1 << 16
"""The limit of the numbers in a row: wider rows are not embeddings."""


class Distribution(IntEnum):
    """The distribution of the numbers of a new row; its values are those of the kernels."""

    CONSTANT = 0
    UNIFORM = 1
    NORMAL = 2
    TRUNCATED_NORMAL = 3


@dataclass(frozen=True, slots=True)
class Initial:
    """The initial values of a new row.

    Every number is ``center + spread * x``, with ``x`` drawn for this table, id and column alone:
    0 for ``CONSTANT``; from [-1, 1) for ``UNIFORM``; from the standard normal distribution, which
    ``TRUNCATED_NORMAL`` cuts off at -2 and 2.
    """

    distribution: Distribution
    center: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of a job's model.

    Attributes:
        name: unique in the model.
        dim: numbers of a row, float32.
        initial: what a new row holds; with ``seed`` it makes a row a function of its id.
        seed: of this table, from 0 to 2^64 - 1.
        min_count: an id gets a row with its ``min_count``-th push; until then its gradients are
            dropped and it keeps its initial row. 1: at once.
        max_age: a row that was not in the last ``max_age`` pushes of the table is dropped; 0:
            none ever is.
    """

    name: str
    dim: int
    initial: Initial
    seed: int
    min_count: int = 1
    max_age: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise LayoutError("an embedding table has no name")
        for what, value, least, most in (
            ("dim", self.dim, 1, MAX_DIM),
            ("seed", self.seed, 0, (1 << 64) - 1),
            ("min_count", self.min_count, 1, 255),
            ("max_age", self.max_age, 0, (1 << 31) - 1),
        ):
            if not isinstance(value, int) or not least <= value <= most:
                raise LayoutError(
                    f"embedding table {self.name!r}: {what} must be from {least} to {most}, "
                    f"not {value!r}"
                )

    @property
    def row_nbytes(self) -> int:
        return 4 * self.dim

    def describe(self) -> dict[str, Any]:
        """Return the table as plain values that JSON can hold; ``from_description`` reads them."""
        return asdict(self)

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> TableSpec:
        initial = described["initial"]
        return cls(
            **{
                **described,
                "initial": Initial(
                    Distribution(initial["distribution"]), initial["center"], initial["spread"]
                ),
            }
        )

    def __str__(self) -> str:
        return f"an embedding table of rows of {self.dim}, {self.initial.distribution.name.lower()}"


def mismatch(mine: Sequence[TableSpec], theirs: Sequence[TableSpec]) -> str | None:
    """Say how the tables of two layouts first differ, or None if they do not."""
    for one, other in zip(mine, theirs, strict=False):
        if one.name != other.name:
            return f"a table is {one.name!r} in one and {other.name!r} in the other"
        for field in ("dim", "initial", "seed", "min_count", "max_age"):
            a, b = getattr(one, field), getattr(other, field)
            if a != b:
                return f"{field} of table {one.name!r} is {a} in one and {b} in the other"
    if len(mine) != len(theirs):
        return f"there are {len(mine)} embedding tables in one and {len(theirs)} in the other"
    return None


def checked_initial(distribution: int, center: float, spread: float, name: str) -> Initial:
    """Validate a worker's description of new rows.

    Raises:
        LayoutError: there is no such distribution, or a number is not finite.
    """
    try:
        kind = Distribution(distribution)
    except ValueError:
        raise LayoutError(
            f"embedding table {name!r}: unknown distribution {distribution}"
        ) from None
    if not (math.isfinite(center) and math.isfinite(spread)):
        raise LayoutError(f"embedding table {name!r}: its initial values are not finite")
    return Initial(kind, center, spread)
