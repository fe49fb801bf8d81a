"""Looks through all records of a file for rows and values that no training survives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

import recordio
import recordio.example
from edl.plugins.texts import count, one_line, plural
from edl_proto.errors import EdlError, ErrorCode
from recordio.formats.csvfile import CsvSource, is_not_finite, is_text, split_row

_MAX_PLACES = 5
"""The number of places of each kind that are named."""
_NOT_FINITE = re.compile(rb'(?:^|,)\s*"?[+-]?(?:nan|inf|infinity)"?\s*(?=,|$)', re.IGNORECASE)
_SAMPLE_ROWS = 200
"""The number of rows that show which columns hold texts."""


@dataclass(slots=True)
class _Findings:
    """Places of one kind: the first ones, and how many there are."""

    number: int = 0
    places: list[tuple[int, str]] = field(default_factory=list)

    def add(self, record: int, what: str) -> None:
        self.number += 1
        if len(self.places) < _MAX_PLACES:
            self.places.append((record, what))


def check_records(
    source: recordio.Source, first: bytes | None, report: Callable[[int], None]
) -> int:
    """Read all records with their checksums, and return their number.

    Args:
        first: the first record.
        report: takes the number of records that are read.

    Raises:
        RecordError: the file is damaged.
        EdlError: DATA_DAMAGED: rows have another number of fields than there are columns, or
            values are not finite.
    """
    lengths, values = _Findings(), _Findings()
    if isinstance(source, CsvSource):
        number = _check_rows(source, lengths, values, report)
    else:
        number = _check_examples(source, first, values, report)
    parts = []
    if lengths.number:
        parts.append(
            f"{plural(lengths.number, 'row')} with another number of fields than the"
            f" {plural(len(source.columns or ()), 'column')}: {_name(source, lengths)}"
        )
    if values.number:
        parts.append(f"{plural(values.number, 'value')} not finite: {_name(source, values)}")
    if parts:
        record = min(found.places[0][0] for found in (lengths, values) if found.places)
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            "; ".join(parts),
            where=source.place(record),
            remedy="Correct or remove these records. Quote fields that contain commas.",
        )
    return number


def _enumerate(
    source: recordio.Source, report: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    number = 0
    for block in source.read_blocks(0, source.count()):
        for record in block:
            yield number, record
            number += 1
        report(number)


def _check_rows(
    source: CsvSource, lengths: _Findings, values: _Findings, report: Callable[[int], None]
) -> int:
    columns = source.columns or ()
    sample = map(split_row, source.read(0, _SAMPLE_ROWS))
    texts = {at for cells in sample for at, cell in enumerate(cells) if is_text(cell)}
    number = -1
    for number, row in _enumerate(source, report):
        suspect = _NOT_FINITE.search(row) is not None
        if b'"' not in row and not suspect:
            if row.count(b",") + 1 != len(columns):
                lengths.add(number, f"{row.count(b',') + 1} fields")
            continue
        cells = split_row(row)
        if len(cells) != len(columns):
            lengths.add(number, plural(len(cells), "field"))
            continue
        for at, cell in enumerate(cells):
            if suspect and at not in texts and is_not_finite(cell):
                values.add(number, f"{one_line(columns[at])}={cell.strip()}")
    return number + 1


def _check_examples(
    source: recordio.Source,
    first: bytes | None,
    values: _Findings,
    report: Callable[[int], None],
) -> int:
    decodes = first is not None and bool(_features(first))
    number = -1
    for number, record in _enumerate(source, report):
        for name, value in _features(record).items() if decodes else ():
            if isinstance(value, np.ndarray) and not np.isfinite(value).all():
                wrong = value[~np.isfinite(value)]
                values.add(number, f"{one_line(name)}={wrong[0]:g}")
    return number + 1


def _features(record: bytes) -> dict[str, recordio.example.Value]:
    """Return the features of a record; none if it is no tf.Example."""
    try:
        return recordio.example.decode(record)
    except recordio.RecordError:
        return {}


def _name(source: recordio.Source, found: _Findings) -> str:
    named = [f"{source.place(record)} ({what})" for record, what in found.places]
    more = found.number - len(named)
    return ", ".join(named) + (f" and {count(more)} more" if more else "")
