"""The layout of variables: one contiguous arena per kind and dtype, agreed once per job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edl_master.core.parameters import table_spec
from edl_master.core.parameters.layout_error import LayoutError
from edl_master.core.parameters.table_spec import TableSpec

DTYPES = ("float32", "float64")
"""The dtypes of arenas. A gradient step cannot update weights of any other dtype."""

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the model: trainable, or state such as a moving average."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __str__(self) -> str:
        kind = "trainable" if self.trainable else "state"
        return f"{self.dtype}{list(self.shape)}, {kind}"


@dataclass(frozen=True, slots=True, order=True)
class ArenaKey:
    """Names an arena; as text, for example ``trainable/float32``."""

    trainable: bool
    dtype: str

    def __str__(self) -> str:
        return f"{'trainable' if self.trainable else 'state'}/{self.dtype}"


Arenas: TypeAlias = Mapping[ArenaKey, Array]
"""One flat array for each arena of a layout, or for some of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a variable: elements ``start`` to ``stop`` (exclusive) of its arena."""

    variable: Variable
    arena: ArenaKey
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.variable.size


class Layout:
    """The variables of a job's model, in the order in which they are sent.

    Arenas and payloads are packed: there are no gaps between variables. A payload of
    parameters holds all variables in this order, a gradient the trainable ones among
    them, a state delta the others.

    Embedding tables are sent separately, row by row.

    Attributes:
        variables: all variables, in wire order.
        tables: the embedding tables; on the wire, a table is its number here.
        places: the place of each variable, in wire order.
        sizes: elements of each arena.
        fingerprint: equal for two layouts exactly when nothing about them differs.
    """

    def __init__(self, variables: Iterable[Variable], tables: Iterable[TableSpec] = ()) -> None:
        """Lay out variables and tables.

        Raises:
            LayoutError: a name is used twice, or a dtype or shape cannot be laid out.
        """
        self.variables: tuple[Variable, ...] = tuple(variables)
        self.tables: tuple[TableSpec, ...] = tuple(tables)
        self.sizes: dict[ArenaKey, int] = {}
        places = []
        names: set[str] = set()
        for variable in self.variables:
            _check(variable, names)
            names.add(variable.name)
            arena = ArenaKey(variable.trainable, variable.dtype)
            start = self.sizes.get(arena, 0)
            places.append(Place(variable, arena, start))
            self.sizes[arena] = start + variable.size
        self.places: tuple[Place, ...] = tuple(places)
        for table in self.tables:
            if table.name in names:
                raise LayoutError(f"two variables or tables are named {table.name!r}")
            names.add(table.name)
        described = json.dumps(self.describe())
        if self.tables:
            described += json.dumps(self.describe_tables())
        self.fingerprint = hashlib.sha256(described.encode()).hexdigest()[:32]

    @property
    def gradient_nbytes(self) -> int:
        """Bytes of a gradient: trainable variables only."""
        return sum(v.nbytes for v in self.variables if v.trainable)

    @property
    def state_nbytes(self) -> int:
        """Bytes of a state delta: variables that are not trainable."""
        return sum(v.nbytes for v in self.variables if not v.trainable)

    @property
    def parameter_nbytes(self) -> int:
        """Bytes of all values, trainable and state."""
        return self.gradient_nbytes + self.state_nbytes

    def arenas(self, *, trainable: bool) -> tuple[ArenaKey, ...]:
        """Return the arenas of one kind."""
        return tuple(key for key in self.sizes if key.trainable == trainable)

    def mismatch(self, other: Layout) -> str | None:
        """Say how another layout first differs from this one, or None if it does not."""
        for index, (mine, theirs) in enumerate(zip(self.variables, other.variables, strict=False)):
            if mine.name != theirs.name:
                return f"variable {index} is {mine.name!r} in one and {theirs.name!r} in the other"
            if mine != theirs:
                return f"variable {mine.name!r} is {mine} in one and {theirs} in the other"
        counts = len(self.variables), len(other.variables)
        if counts[0] != counts[1]:
            longer = max(self.variables, other.variables, key=len)
            extra = longer[min(counts)].name
            numbers = f"{counts[0]} and {counts[1]} variables"
            return f"variable {extra!r} is in only one of the two ({numbers})"
        return table_spec.mismatch(self.tables, other.tables)

    def describe(self) -> list[list[Any]]:
        """Return the layout as plain values that JSON can hold; ``from_description`` reads them."""
        return [[v.name, list(v.shape), v.dtype, v.trainable] for v in self.variables]

    def describe_tables(self) -> list[dict[str, Any]]:
        """Return the tables as plain values that JSON can hold."""
        return [table.describe() for table in self.tables]

    @classmethod
    def from_description(
        cls,
        description: Sequence[Sequence[Any]],
        tables: Iterable[Mapping[str, Any]] = (),
    ) -> Layout:
        return cls(
            (
                Variable(name, tuple(shape), dtype, trainable)
                for name, shape, dtype, trainable in description
            ),
            map(TableSpec.from_description, tables),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.variables, self.tables) == (
            other.variables,
            other.tables,
        )

    def __hash__(self) -> int:
        return hash((self.variables, self.tables))


def _check(variable: Variable, names: set[str]) -> None:
    if not variable.name:
        raise LayoutError("a variable has no name")
    if variable.name in names:
        raise LayoutError(f"two variables are named {variable.name!r}; names must be unique")
    if variable.dtype not in DTYPES:
        remedy = (
            "make its layer non-trainable, or"
            if variable.trainable
            else "keep it in the worker, or"
        )
        raise LayoutError(
            f"variable {variable.name!r} has dtype {variable.dtype}; the parameters are served as "
            f"{' or '.join(DTYPES)}: {remedy} build the model with one of these dtypes"
        )
    if any(not isinstance(n, int) or n < 0 for n in variable.shape):
        raise LayoutError(
            f"variable {variable.name!r} has shape {variable.shape}; "
            "every dimension must be a number known before training"
        )
