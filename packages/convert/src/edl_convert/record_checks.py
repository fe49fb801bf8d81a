"""Looks through all records of a file for rows and values that no training survives."""

from __future__ import annotations

import re
from collections import Counter
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
_LETTER = re.compile(rb"(?:^|,)\s*[+-]?[^\s,\d.+-]")
"""The first character of a field that is no number and not empty."""
_SAMPLE_ROWS = 200
"""The number of rows that show which columns hold texts."""
_RARE = 20
"""A column holds texts if there is more than one for so many numbers in it."""


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
            values are not finite or are texts among numbers.
    """
    lengths, values, texts = _Findings(), _Findings(), _Findings()
    if isinstance(source, CsvSource):
        number = _check_rows(source, lengths, values, texts, report)
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
    if texts.number:
        parts.append(f"{plural(texts.number, 'text')} among numbers: {_name(source, texts)}")
    if parts:
        record = min(found.places[0][0] for found in (lengths, values, texts) if found.places)
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
    source: CsvSource,
    lengths: _Findings,
    values: _Findings,
    texts: _Findings,
    report: Callable[[int], None],
) -> int:
    columns = source.columns or ()
    of_text = _text_columns(source)
    number = -1
    for number, row in _enumerate(source, report):
        suspect = _NOT_FINITE.search(row) is not None
        if b'"' not in row and not suspect and not _LETTER.search(row):
            if row.count(b",") + 1 != len(columns):
                lengths.add(number, f"{row.count(b',') + 1} fields")
            continue
        cells = split_row(row)
        if len(cells) != len(columns):
            lengths.add(number, plural(len(cells), "field"))
            continue
        for at, cell in enumerate(cells):
            if at in of_text:
                continue
            if suspect and is_not_finite(cell):
                values.add(number, f"{one_line(columns[at])}={cell.strip()}")
            elif is_text(cell):
                texts.add(number, f"{one_line(columns[at])}={one_line(cell.strip())}")
    return number + 1


def _text_columns(source: CsvSource) -> set[int]:
    """Return the numbers of the columns of texts; a single text among numbers makes none."""
    texts, numbers = Counter[int](), Counter[int]()
    for row in source.read(0, _SAMPLE_ROWS):
        for at, cell in enumerate(split_row(row)):
            if is_text(cell):
                texts[at] += 1
            elif cell.strip() and not is_not_finite(cell):
                numbers[at] += 1
    return {at for at, found in texts.items() if found * _RARE > numbers[at]}


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
