"""Finds the columns or features of a file by its first records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import recordio
import recordio.example
from recordio.description import (
    MIXED,
    NUMBER,
    TEXT,
    DataDescription,
    DataField,
    Form,
)
from recordio.formats.csvfile import MISSING, is_text, split_row

_ROWS, _EXAMPLES = 200, 16
"""The number of records of a file that are looked at."""
_FEW = 8
"""From so many records on, a number of values that is always the same is taken for fixed."""
_KINDS = {"i": "int64", "f": "float"}


def describe_fields(source: recordio.Source) -> DataDescription | None:
    """Return the fields of a file; None if its records are neither rows nor tf.Examples.

    Raises:
        RecordError: the file cannot be read.
    """
    if source.columns is not None:
        return _describe_table(source.columns, source.read(0, _ROWS))
    try:
        examples = [recordio.example.decode(record) for record in source.read(0, _EXAMPLES)]
    except recordio.DamagedFile:
        return None  # the task of these records says it
    except recordio.UnreadableFile:
        raise
    except recordio.RecordError:
        return None
    return _describe_examples([one for one in examples if one])


def _describe_table(columns: Sequence[str], rows: Iterator[bytes]) -> DataDescription:
    kinds: list[set[str]] = [set() for _ in columns]
    for row in rows:
        cells = split_row(row)
        if len(cells) == len(columns):
            for kind, cell in zip(kinds, cells, strict=True):
                kind.add(_kind_of(cell.strip()))
    return DataDescription(
        Form.TABLE,
        tuple(
            DataField(name, MIXED if len(kind - {""}) > 1 else max(kind, default=""))
            for name, kind in zip(columns, kinds, strict=True)
        ),
    )


def _kind_of(cell: str) -> str:
    if cell.lower() in MISSING:
        return ""
    return TEXT if is_text(cell) else NUMBER


def _describe_examples(
    examples: Sequence[dict[str, recordio.example.Value]],
) -> DataDescription | None:
    names = sorted({name for example in examples for name in example})
    if not names:
        return None
    fields = []
    for name in names:
        values = [example[name] for example in examples if name in example]
        kinds = {
            _KINDS[value.dtype.kind] if isinstance(value, np.ndarray) else "bytes"
            for value in values
            if len(value)
        }
        sizes = {len(value) for value in values}
        fixed = len(sizes) == 1 and len(values) >= _FEW
        fields.append(
            DataField(
                name,
                MIXED if len(kinds) > 1 else max(kinds, default=""),
                sizes.pop() if fixed else -1,
                len(values) == len(examples),
            )
        )
    return DataDescription(Form.EXAMPLES, tuple(fields))
