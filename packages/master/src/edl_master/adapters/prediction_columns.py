"""The columns of prediction tables: what they are, and their cells, for many rows at once.

What the columns are is decided by all rows, so that nothing can fail at the end of a job: a value
that a format cannot hold is written in another form (docs/data.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from recordio import example_batch
from recordio.example import Value

Array = np.ndarray[Any, Any]


class CellKind(IntEnum):
    """The kind of a column's values; the greatest of several kinds can hold all of them."""

    INT = 0
    FLOAT = 1
    DOUBLE = 2
    TEXT = 3
    BINARY = 4


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One feature of all rows.

    Attributes:
        length: number of its values in every row that has it; None: it varies.
    """

    name: str
    kind: CellKind
    length: int | None


class Rows:
    """Some rows of a table.

    Args:
        records: serialized tf.Examples.

    Raises:
        RecordError: one is not.
    """

    def __init__(self, records: Sequence[bytes]) -> None:
        self.size = len(records)
        self.groups = example_batch.decode(records)

    def cells(self, column: TableColumn) -> list[Any]:
        """Return a value, a list of values, or None for each row."""
        found: list[Any] = [None] * self.size
        for group in self.groups:
            if column.name not in group.features:
                continue
            values = group.features[column.name]
            cells = _cells(column, values)
            if len(cells) == self.size:
                found = cells  # all rows are of one group, in order
                continue
            for position, cell in zip(group.positions.tolist(), cells, strict=True):
                found[position] = cell
        return found


# --- what the columns are ------------------------------------------------------------------------

_INT = re.compile(rb"-?(0|[1-9][0-9]{0,17})")
_DOUBLE = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(slots=True)
class _Found:
    """The kinds of values that a feature has had so far."""

    kinds: set[CellKind] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)

    def add(self, values: Array | list[list[bytes]], typed: bool) -> None:
        if isinstance(values, np.ndarray):
            if values.size:
                self.lengths.add(values.shape[1])
                self.kinds.add(CellKind.INT if values.dtype.kind == "i" else CellKind.FLOAT)
            return
        self.lengths.update(len(each) for each in values if each)
        texts = [text for each in values for text in each]
        if typed and CellKind.TEXT not in self.kinds:
            self.kinds.update(map(_kind_of_text, filter(None, texts)))
        elif texts and (texts != [b""] * len(texts) or not typed):
            self.kinds.add(CellKind.TEXT if _is_text(b"\n".join(texts)) else CellKind.BINARY)

    def column(self, name: str) -> TableColumn:
        kind = max(self.kinds, default=CellKind.TEXT)
        if kind is CellKind.FLOAT and len(self.kinds) > 1:
            kind = CellKind.DOUBLE  # a float of 32 bits does not hold every integer
        length = None if len(self.lengths) > 1 else max(self.lengths, default=1)
        return TableColumn(name, kind, length)


def _kind_of_text(text: bytes) -> CellKind:
    if _INT.fullmatch(text):
        return CellKind.INT
    # An integer of more digits is an identifier, which a float would change.
    if _DOUBLE.fullmatch(text) and not text.lstrip(b"-").isdigit():
        return CellKind.DOUBLE
    return CellKind.TEXT if _is_text(text) else CellKind.BINARY


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def columns_of(
    blocks: Iterable[Rows], first: Sequence[str], *, typed: bool
) -> tuple[TableColumn, ...]:
    """Return the columns that hold the features of all rows.

    Args:
        first: names of the features that come first, in this order; the others follow by name.
        typed: whether texts of these features are numbers if all of them look like numbers.
    """
    found: dict[str, _Found] = {name: _Found() for name in first}
    for block in blocks:
        for group in block.groups:
            for name, values in group.features.items():
                found.setdefault(name, _Found()).add(values, typed and name in first)
    others = sorted(found.keys() - set(first))
    return tuple(found[name].column(name) for name in (*first, *others))


# --- cells -------------------------------------------------------------------------------------


def _cells(column: TableColumn, values: Array | list[list[bytes]]) -> list[Any]:
    """Return the cells of some rows that have the feature."""
    if isinstance(values, np.ndarray):
        converted = _numbers(column.kind, values)
        if converted is not None:
            single = column.length == 1
            if single and not values.shape[1]:
                return [None] * len(values)
            cells: list[Any] = (converted[:, 0] if single else converted).tolist()
            return cells
    return [_cell(column, value) for value in values]


def _numbers(kind: CellKind, values: Array) -> Array | None:
    """Return the numbers as the column has them; None if the column has texts."""
    match kind, values.dtype.kind:
        case CellKind.INT, "i":
            return values
        case ((CellKind.FLOAT | CellKind.DOUBLE), "i"):
            return values.astype(np.float64)
        case ((CellKind.FLOAT | CellKind.DOUBLE), "f"):
            return shortest(values)
    return None


def _cell(column: TableColumn, value: Value) -> Any:
    values = _values(column, value)
    if column.length == 1:
        return values[0] if values else None
    return values


def _values(column: TableColumn, value: Value) -> list[Any]:
    """Return the values of a feature as the numbers, texts or bytes that its column has."""
    match column.kind:
        case CellKind.INT:
            return [int(one) for one in _drop_empty(value)]
        case CellKind.FLOAT | CellKind.DOUBLE:
            return [
                float(one if isinstance(one, bytes) else str(one)) for one in _drop_empty(value)
            ]
        case CellKind.TEXT:
            return [one.decode() if isinstance(one, bytes) else str(one) for one in value]
        case CellKind.BINARY:
            return [one if isinstance(one, bytes) else str(one).encode() for one in value]


def _drop_empty(value: Value) -> Iterator[Any]:
    """Yield the values of a feature without its empty cells."""
    return (one for one in value if not isinstance(one, bytes) or one)


_POWERS = np.array([float(f"1e{power}") for power in range(23)])
"""The powers of ten that are exact numbers of 64 bits."""
_DIGITS = (6, 7, 8, 9)
"""9 digits distinguish every float of 32 bits from all others; 6 are enough for some."""


def shortest(values: Array) -> Array:
    """Widen floats of 32 bits so that they print as short as before: 0.1, not 0.10000000149.

    Each is ``float(str(value))``, without the text: the integer of its digits, divided or
    multiplied by an exact power of ten, is rounded once.
    """
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exact = flat.astype(np.float64)
        magnitude = np.floor(np.log10(np.abs(exact)))
        usual = np.isfinite(magnitude) & (np.abs(magnitude) < len(_POWERS) - max(_DIGITS))
    result = exact.copy()
    for at in np.flatnonzero(~usual & np.isfinite(exact) & (exact != 0)).tolist():
        result[at] = float(str(flat[at]))
    waiting = np.flatnonzero(usual)
    for digits in _DIGITS:
        if not len(waiting):
            break
        power = (digits - 1 - magnitude[waiting]).astype(np.int64)
        scale = _POWERS[np.abs(power)]
        number = np.rint(np.where(power >= 0, exact[waiting] * scale, exact[waiting] / scale))
        candidate = np.where(power >= 0, number / scale, number * scale)
        same = candidate.astype(np.float32) == flat[waiting]
        result[waiting[same]] = candidate[same]
        waiting = waiting[~same]
    return result.reshape(values.shape)
