"""Finds a value that is not finite in records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

import recordio
import recordio.example
from edl_proto.errors import EdlError
from edl_worker.model_file.bad_records import Records
from recordio.formats.csvfile import is_not_finite, is_text, split_row


def find_value(records: Callable[[], Sequence[Records]]) -> tuple[str, str] | None:
    """Return the place of the first value that is not finite, and the value with its name.

    A column of texts is left out: ``nan`` may be a word in it. None if there is no such value, or
    if the records cannot be read again.
    """
    first: dict[str, tuple[Records, int, str]] = {}
    texts: set[str] = set()
    try:
        for part in records():
            for number, record in enumerate(chain.from_iterable(part.read()), part.start):
                for name, value in _values(record, part.order.columns):
                    if is_not_finite(value):
                        first.setdefault(name, (part, number, value))
                    elif is_text(value):
                        texts.add(name)
        for name, (part, number, value) in first.items():
            if name not in texts:
                return part.place(number), f"{name}={value.strip()}"
    except (recordio.RecordError, OSError, EdlError):
        pass
    return None


def _values(record: bytes, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a row, or those features of an example that are not finite."""
    if columns:
        yield from zip(columns, split_row(record), strict=False)
        return
    try:
        features = recordio.example.decode(record)
    except recordio.RecordError:  # not an example
        return
    for name, value in features.items():
        if isinstance(value, np.ndarray) and (bad := value[~np.isfinite(value)]).size:
            yield name, str(bad[0])
