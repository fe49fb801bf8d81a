"""Measures the numbers in the columns or features of data, by a sample from all over it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import recordio
import recordio.example
from edl_master.adapters.data import DataFile, DataSet
from recordio.formats.csvfile import MISSING, is_text, split_row
from recordio.kafka.addresses import is_kafka
from recordio.number_ranges import MAX_FIELDS, NumberRange, measure

log = logging.getLogger(__name__)

_PLACES = 8
_RECORDS = 256
_MAX_READ, _MAX_BYTES = 32768, 8 << 20
"""Of all places together. Most of the records between those that are looked at are only skipped."""
_MAX_VALUES = 1024
"""Of one record in one feature, such as the pixels of an image."""

_Numbers = npt.NDArray[np.float64]
_NONE: _Numbers = np.zeros(0)


@dataclass(frozen=True, slots=True)
class _Place:
    """Records of one block, of which every ``step``-th is looked at."""

    file: DataFile
    start: int
    stop: int
    step: int


def measure_fields(data: DataSet) -> dict[str, NumberRange]:
    """Return the ranges of the numbers in data by the names of columns or features.

    It reads a few hundred records from all over the data. Data that may be sorted, and of which it
    would see the beginning only, has no ranges. What cannot be read is left to the tasks.
    """
    try:
        places = _choose_places(data)
        if not places:
            return {}
        with ThreadPoolExecutor(len(places), thread_name_prefix="measure") as threads:
            samples = list(threads.map(lambda place: _read(place, len(places)), places))
    except Exception as error:  # stores raise errors of many libraries
        log.warning("the numbers of the data could not be measured: %s", error)
        return {}
    return _measure(places, samples) if all(samples) else {}


def _choose_places(data: DataSet) -> list[_Place]:
    files = [file for file in data.files if file.description is not None and file.index.records]
    if not files or any(is_kafka(file.uri) for file in files):
        return []
    chosen = [files[at] for at in _spread(len(files), _PLACES)]
    each = -(-_PLACES // len(chosen))
    blocks = [
        (file, file.index.first_records[at])
        for file in chosen
        for at in _spread(len(file.index.first_records), each)
    ]
    most, wanted = _MAX_READ // len(blocks), -(-_RECORDS // len(blocks))
    places = []
    for file, start in blocks:
        count = file.index.next_block(start) - start
        if len(blocks) < _PLACES and count > most:
            return []
        count = min(count, most)
        places.append(_Place(file, start, start + count, max(1, count // wanted)))
    return places


def _spread(count: int, places: int) -> Sequence[int]:
    """Return so many of the numbers below ``count``, the first and the last among them."""
    found: list[int] = np.linspace(0, count - 1, min(count, places)).astype(int).tolist()
    return found


def _read(place: _Place, places: int) -> list[dict[str, _Numbers | None]]:
    """Return the values of the records of a place; none if they would be a beginning only."""
    file, index = place.file, place.file.index
    nbytes, found = 0, list[dict[str, _Numbers | None]]()
    source = recordio.open_source(file.uri, format=file.format, version=file.version)
    records = source.read(place.start, place.stop, hint=index.block(place.start))
    for number, record in enumerate(records):
        nbytes += len(record)
        if nbytes > _MAX_BYTES // places:
            return found if places >= _PLACES else []
        if number % place.step == 0:
            found.append(_values_of(record, file.columns))
    return found


def _values_of(record: bytes, columns: Sequence[str]) -> dict[str, _Numbers | None]:
    """Return the numbers of a record by name; None for a text."""
    if columns:
        return dict(zip(columns, map(_number_of, split_row(record)), strict=False))
    return {
        name: value[:_MAX_VALUES].astype(np.float64)
        if isinstance(value, np.ndarray)
        else None
        if value
        else _NONE
        for name, value in recordio.example.decode(record).items()
    }


def _number_of(cell: str) -> _Numbers | None:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return _NONE
    return None if is_text(cell) else np.array([float(cell)])


def _measure(
    places: Sequence[_Place], samples: Sequence[list[dict[str, _Numbers | None]]]
) -> dict[str, NumberRange]:
    description = places[0].file.description
    assert description is not None, "such files are not chosen"
    records = [record for sample in samples for record in sample]
    found = {}
    for name in description.names[:MAX_FIELDS]:
        values = [record.get(name, _NONE) for record in records]
        numbers = [each for each in values if each is not None]
        if len(numbers) == len(values):
            found[name] = measure(numbers)
    return found
