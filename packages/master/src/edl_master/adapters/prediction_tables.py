"""Predictions as tables: CSV, JSON Lines and Parquet files of ``tf.Example`` rows."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edl_master.adapters.prediction_columns import CellKind, Rows, TableColumn
from edl_proto.errors import EdlError, ErrorCode

FORMATS = ("csv", "jsonl", PARQUET := "parquet")
_GROUP_VALUES = 1 << 20
"""Values of a row group: large enough to compress well, small enough for the memory."""


def check_installed(form: str) -> None:
    """Check that this format can be written here. Raises: EdlError: USAGE; a package is missing."""
    if form != PARQUET:
        return
    try:
        import pyarrow.parquet  # noqa: F401  (whether it can be imported)
    except ModuleNotFoundError:
        raise EdlError(
            ErrorCode.USAGE,
            "the output format parquet needs the package pyarrow, which is not installed",
            where="import pyarrow",
            remedy="pip install pyarrow, or choose --format csv or --format jsonl.",
        ) from None


def write(form: str, blocks: Iterable[Rows], columns: Sequence[TableColumn], path: Path) -> int:
    """Write a new file, up to the disk; return the number of rows.

    Args:
        form: csv, jsonl or parquet.
        columns: as ``columns_of`` returns them.
    """
    with path.open("xb") as file:
        written = _WRITERS[form](blocks, columns, file)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_json_lines(
    blocks: Iterable[Rows], columns: Sequence[TableColumn], file: IO[bytes]
) -> int:
    names = [column.name for column in columns]
    encode = json.JSONEncoder(ensure_ascii=False).encode
    written = 0
    for block in blocks:
        cells = [_of_json(column, block.cells(column)) for column in columns]
        lines = [encode(dict(zip(names, row, strict=True))) for row in zip(*cells, strict=True)]
        file.write("".join(f"{line}\n" for line in lines).encode())
        written += block.size
    return written


def _of_json(column: TableColumn, cells: list[Any]) -> list[Any]:
    """Return the cells as JSON has them: neither NaN nor infinity, no bytes."""
    match column.kind:
        case CellKind.FLOAT | CellKind.DOUBLE:
            return [_finite(cell) for cell in cells]
        case CellKind.BINARY:
            return [_printable(cell) for cell in cells]
    return cells


def _finite(cell: Any) -> Any:
    if isinstance(cell, list):
        return [one if math.isfinite(one) else None for one in cell]
    return cell if cell is None or math.isfinite(cell) else None


def _printable(cell: Any) -> Any:
    """Return a cell in which bytes that are no text are written as base64."""
    if isinstance(cell, list):
        return [_printable(one) for one in cell]
    return cell if cell is None else base64.b64encode(cell).decode()


def _write_csv(blocks: Iterable[Rows], columns: Sequence[TableColumn], file: IO[bytes]) -> int:
    headers = [_csv_names(column) for column in columns]
    names = [name for header in headers for name in header]
    if len(set(names)) < len(names):
        headers = [[column.name] for column in columns]
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(name for header in headers for name in header)
    written = 0
    for block in blocks:
        cells = [
            part
            for column, header in zip(columns, headers, strict=True)
            for part in _csv_cells(column, block.cells(column), len(header))
        ]
        table.writerows(zip(*cells, strict=True))
        written += block.size
    text.detach()
    return written


def _csv_names(column: TableColumn) -> list[str]:
    """Return a table column for each value of a feature, if all rows have equally many."""
    if column.length is None or column.length == 1:
        return [column.name]
    return [f"{column.name}_{index}" for index in range(column.length)]


def _csv_cells(column: TableColumn, cells: list[Any], width: int) -> Iterable[Sequence[Any]]:
    """Return the columns of the table that a column of ``width`` names has."""
    if column.kind is CellKind.BINARY:
        cells = [_printable(cell) for cell in cells]
    if column.length == 1:
        return [cells]
    if width == 1:
        return [[json.dumps(cell or [], ensure_ascii=False) for cell in cells]]
    nothing = [None] * width
    return zip(*(cell or nothing for cell in cells), strict=True)


def _write_parquet(blocks: Iterable[Rows], columns: Sequence[TableColumn], file: IO[bytes]) -> int:
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
    group = max(1, _GROUP_VALUES // max(1, width))
    written, waiting = 0, schema.empty_table()
    with ParquetWriter(file, schema) as table:
        for block in blocks:
            arrays = [
                pyarrow.array(block.cells(one), field.type)
                for one, field in zip(columns, schema, strict=True)
            ]
            found = pyarrow.Table.from_arrays(arrays, schema=schema)
            waiting = pyarrow.concat_tables([waiting, found])
            whole = len(waiting) // group * group
            if whole:
                table.write_table(waiting.slice(0, whole), row_group_size=group)
                waiting = waiting.slice(whole)
            written += block.size
        if len(waiting):
            table.write_table(waiting)
    return written


_WRITERS: Mapping[str, Callable[[Iterable[Rows], Sequence[TableColumn], IO[bytes]], int]] = {
    "csv": _write_csv,
    "jsonl": _write_json_lines,
    PARQUET: _write_parquet,
}
