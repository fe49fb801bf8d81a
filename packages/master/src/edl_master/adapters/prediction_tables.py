"""Predictions as tables: CSV, JSON Lines and Parquet files of ``tf.Example`` rows.

What the columns are is decided by all rows, so that nothing can fail at the end of a job: a value
that a format cannot hold is written in another form (docs/data.md).
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import IO, Any

import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from recordio.example import Value

Row = Mapping[str, Value]

FORMATS = ("csv", "jsonl", PARQUET := "parquet")
_GROUP_VALUES = 1 << 20
"""Values of a row group: large enough to compress well, small enough for the memory."""


class CellKind(IntEnum):
    """What the values of a column are; of several kinds, the greatest holds all."""

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


def check_installed(form: str) -> None:
    """Check that this format can be written here.

    Raises:
        EdlError: USAGE; a package is missing.
    """
    if form != PARQUET:
        return
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError:
        raise EdlError(
            ErrorCode.USAGE,
            "the output format parquet needs the package pyarrow, which is not installed",
            where="import pyarrow",
            remedy="pip install pyarrow, or choose --format csv or --format jsonl.",
        ) from None


# --- columns -----------------------------------------------------------------------------------

_INT = re.compile(rb"-?(0|[1-9][0-9]{0,17})")
_DOUBLE = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(slots=True)
class _Found:
    """What the values of a feature were so far."""

    kinds: set[CellKind] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)

    def add(self, value: Value, typed: bool) -> None:
        if not len(value):
            return
        self.lengths.add(len(value))
        if isinstance(value, np.ndarray):
            self.kinds.add(CellKind.INT if value.dtype.kind == "i" else CellKind.FLOAT)
        else:
            self.kinds.update(_kind_of_text(text, typed) for text in value if text or not typed)

    def column(self, name: str) -> TableColumn:
        kind = max(self.kinds, default=CellKind.TEXT)
        if kind is CellKind.FLOAT and len(self.kinds) > 1:
            kind = CellKind.DOUBLE  # a float of 32 bits does not hold every integer
        length = None if len(self.lengths) > 1 else max(self.lengths, default=1)
        return TableColumn(name, kind, length)


def _kind_of_text(text: bytes, typed: bool) -> CellKind:
    if typed and _INT.fullmatch(text):
        return CellKind.INT
    # An integer of more digits is an identifier, which a float would change.
    if typed and _DOUBLE.fullmatch(text) and not text.lstrip(b"-").isdigit():
        return CellKind.DOUBLE
    try:
        text.decode()
    except UnicodeDecodeError:
        return CellKind.BINARY
    return CellKind.TEXT


def columns_of(
    rows: Iterable[Row], first: Sequence[str], *, typed: bool
) -> tuple[TableColumn, ...]:
    """What the features of all rows are.

    Args:
        first: names of the features that come first, in this order; the others follow by name.
        typed: whether texts of these features are numbers if all of them look like numbers.
    """
    found: dict[str, _Found] = {name: _Found() for name in first}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, _Found()).add(value, typed and name in first)
    others = sorted(found.keys() - set(first))
    return tuple(found[name].column(name) for name in (*first, *others))


# --- values ------------------------------------------------------------------------------------


def _values(column: TableColumn, value: Value) -> list[Any]:
    """The values of a feature as the numbers, texts or bytes that its column has."""
    match column.kind:
        case CellKind.INT:
            return [int(one) for one in _filled(value)]
        case CellKind.FLOAT | CellKind.DOUBLE:
            # As short as a float of 32 bits is written: 0.1, not 0.10000000149011612.
            return [float(one if isinstance(one, bytes) else str(one)) for one in _filled(value)]
        case CellKind.TEXT:
            return [one.decode() if isinstance(one, bytes) else str(one) for one in value]
        case CellKind.BINARY:
            return [one if isinstance(one, bytes) else str(one).encode() for one in value]


def _filled(value: Value) -> Iterator[Any]:
    """The numbers of a feature; an empty cell is none."""
    return (one for one in value if not isinstance(one, bytes) or one)


def _printable(value: Any) -> Any:
    """A value in a text: bytes that are no text are written as base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _cell(column: TableColumn, value: Value | None) -> Any:
    """One value, a list of values, or None if there is none."""
    values = [] if value is None else _values(column, value)
    if column.length == 1:
        return values[0] if values else None
    return None if value is None else values


# --- formats -----------------------------------------------------------------------------------


def write(form: str, rows: Iterable[Row], columns: Sequence[TableColumn], path: Path) -> int:
    """Write a new file, up to the disk; return the number of rows.

    Args:
        form: csv, jsonl or parquet.
        columns: as ``columns_of`` returns them.
    """
    with path.open("xb") as file:
        written = _WRITERS[form](rows, columns, file)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_json_lines(rows: Iterable[Row], columns: Sequence[TableColumn], file: IO[bytes]) -> int:
    written = 0
    for row in rows:
        line = {one.name: _json(_cell(one, row.get(one.name))) for one in columns}
        file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        written += 1
    return written


def _json(value: Any) -> Any:
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has neither NaN nor infinity
    return _printable(value)


def _write_csv(rows: Iterable[Row], columns: Sequence[TableColumn], file: IO[bytes]) -> int:
    headers = [_csv_names(column) for column in columns]
    names = [name for header in headers for name in header]
    if len(set(names)) < len(names):
        headers = [[column.name] for column in columns]
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(name for header in headers for name in header)
    written = 0
    for row in rows:
        table.writerow(
            cell
            for column, header in zip(columns, headers, strict=True)
            for cell in _csv_cells(column, row.get(column.name), len(header))
        )
        written += 1
    text.detach()
    return written


def _csv_names(column: TableColumn) -> list[str]:
    """One column of the table for each value, if every row has as many."""
    if column.length is None or column.length == 1:
        return [column.name]
    return [f"{column.name}_{index}" for index in range(column.length)]


def _csv_cells(column: TableColumn, value: Value | None, cells: int) -> list[Any]:
    values = [] if value is None else [_printable(one) for one in _values(column, value)]
    if cells == 1 and column.length != 1:
        return [json.dumps(values, ensure_ascii=False)]
    return values or [None] * cells


def _write_parquet(rows: Iterable[Row], columns: Sequence[TableColumn], file: IO[bytes]) -> int:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    types = {
        CellKind.INT: pyarrow.int64(),
        CellKind.FLOAT: pyarrow.float32(),
        CellKind.DOUBLE: pyarrow.float64(),
        CellKind.TEXT: pyarrow.string(),
        CellKind.BINARY: pyarrow.binary(),
    }
    schema = pyarrow.schema(
        (one.name, types[one.kind] if one.length == 1 else pyarrow.list_(types[one.kind]))
        for one in columns
    )
    width = sum(one.length or 16 for one in columns)
    written = 0
    with ParquetWriter(file, schema) as table:
        for group in _groups(rows, max(1, _GROUP_VALUES // max(1, width))):
            arrays = [
                pyarrow.array([_cell(one, row.get(one.name)) for row in group], field.type)
                for one, field in zip(columns, schema, strict=True)
            ]
            table.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            written += len(group)
    return written


def _groups(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    waiting = iter(rows)
    while group := list(itertools.islice(waiting, size)):
        yield group


_WRITERS: Mapping[str, Callable[[Iterable[Row], Sequence[TableColumn], IO[bytes]], int]] = {
    "csv": _write_csv,
    "jsonl": _write_json_lines,
    PARQUET: _write_parquet,
}
