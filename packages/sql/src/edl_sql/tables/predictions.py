"""Reads predictions with their keys, as ``edl predict --keep`` writes them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import recordio
import recordio.example
from edl.plugins.data import data_files
from edl.plugins.texts import did_you_mean
from edl_convert.column_types import Cell, cell_kind, read_cell
from edl_convert.source_files import open_text
from edl_convert.tables import cannot_open, parquet_file, unreadable

_BATCH = 4096


class Predictions:
    """One value for each key, read anew for each pass.

    Args:
        pattern: files of predictions.
        key: the feature or column that identifies a row.
        name: of the prediction.
        classes: names of the classes, if the predictions are their numbers and the names are meant.

    Raises:
        EdlError: there are no files.
    """

    def __init__(self, pattern: str, key: str, name: str, classes: Sequence[str] = ()) -> None:
        self._files = data_files.expand(pattern, "--from")
        self._key = key
        self._name = name
        self._classes = classes

    def kind(self) -> Cell:
        """Return the kind that fits all values: INT, FLOAT or TEXT.

        Raises:
            EdlError: a value or key is missing, or is not one value.
        """
        kinds = {_kind(value) for _, _, value in self._items()}
        if kinds and self._classes:
            return Cell.TEXT  # a name may look like a number: 007
        return max(kinds, default=Cell.EMPTY)

    def items(self, kind: Cell) -> Iterator[tuple[str, Any, int | float | str]]:
        """Yield place, key and value of each prediction, with values of this kind."""
        for where, key, value in self._items():
            yield where, key, _convert(value, kind)

    def _items(self) -> Iterator[tuple[str, Any, Any]]:
        for file in self._files:
            for where, row in _rows(file):
                value = self._one(row, self._name, where)
                if self._classes:
                    value = self._class_of(value, where)
                yield where, self._one(row, self._key, where), value

    def _class_of(self, number: Any, where: str) -> str:
        # A list would take -1 for its last one.
        if not isinstance(number, int) or not 0 <= number < len(self._classes):
            raise unreadable(
                f"{self._name} is {number!r}, and the model has {len(self._classes)} classes,"
                " numbered from 0",
                where,
                "Train a model whose number of outputs is its number of classes.",
            )
        return self._classes[number]

    def _one(self, row: Mapping[str, Any], name: str, where: str) -> Any:
        if name not in row:
            option = "--key" if name == self._key else "--prediction"
            raise unreadable(
                f"{option} {name}: the predictions have no such column or feature",
                where,
                did_you_mean(name, row)
                or f"They have {', '.join(sorted(row))}; edl predict --keep {name} adds a column.",
            )
        value = row[name]
        if isinstance(value, list | np.ndarray):
            if len(value) != 1:
                raise unreadable(
                    f"{name} has {len(value)} values; a column takes one for each row",
                    where,
                    "Predict one: edl predict --postprocess argmax",
                )
            value = value[0].item() if isinstance(value, np.ndarray) else value[0]
        if isinstance(value, bytes):
            value = value.decode(errors="backslashreplace")
        if value is None or value == "":
            raise unreadable(f"{name} is empty", where, "Every prediction needs key and value.")
        return value


def _kind(value: Any) -> Cell:
    if isinstance(value, str):
        return cell_kind(value)
    return Cell.INT if isinstance(value, int) else Cell.FLOAT


def _convert(value: Any, kind: Cell) -> int | float | str:
    if kind is Cell.TEXT:
        return str(value)
    if isinstance(value, str):
        number = read_cell(value, kind)
        return number if isinstance(number, int | float) else value
    return float(value) if kind is Cell.FLOAT else int(value)


def _rows(file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and values of each row of a file of predictions."""
    data_files.readable_size(file, "--from")
    rows = _READERS.get(os.path.splitext(file)[1].lower())
    if rows is None:
        yield from _record_rows(file)
    else:
        yield from rows(file)


def _csv_rows(file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with open_text(file) as text:
            reader = csv.DictReader(text, strict=True)
            for row in reader:
                yield f"{file}:{reader.line_num}", row
    except OSError as error:
        raise cannot_open(error, file) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise unreadable(f"not a CSV file: {error}", file, "Predict again.") from None


def _json_rows(file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    number = 0
    try:
        with open_text(file) as text:
            for number, line in enumerate(text, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError("a line is not an object")
                    yield f"{file}:{number}", row
    except OSError as error:
        raise cannot_open(error, file) from None
    except (ValueError, RecursionError) as error:
        raise unreadable(f"not JSON Lines: {error}", f"{file}:{number}", "Predict again.") from None


def _parquet_rows(file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    number = 0
    with parquet_file(file) as table:
        for batch in table.iter_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                yield f"{file}, row {number}", row
                number += 1


_READERS = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}


def _record_rows(file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        source = recordio.open_source(file)
        for number, record in enumerate(source.read(0, source.count())):
            yield f"{file}, record {number}", recordio.example.decode(record)
    except recordio.RecordError as error:
        raise data_files.record_error(error, file) from None
