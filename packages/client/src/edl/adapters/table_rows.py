"""Finds rows of CSV files that cannot be meant, before a job starts.

They have more or fewer cells than the header, or no value at all.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TextIO

import recordio
from edl.adapters import data_files
from edl.core.locations import scheme
from edl_proto.errors import EdlError, ErrorCode

_MAX_BYTES = 16 << 20
"""Of all files together: half a second. ``edl data inspect --check`` reads the rest."""


def check(patterns: Sequence[str], form: str, option: str, *, may_be_empty: bool = False) -> None:
    """Check the rows of files on this machine, up to a size that delays no job.

    Args:
        may_be_empty: whether rows may have no value, as those of a prediction.

    Raises:
        EdlError: DATA_DAMAGED, with the line of the first such row.
    """
    left = _MAX_BYTES
    for pattern in patterns:
        for file in data_files.expand(pattern, option):
            if scheme(file) or not (size := data_files.readable_size(file, option)):
                continue
            left -= size
            if left < 0:
                return
            try:
                columns = recordio.open_source(file, format=form or None).columns
            except recordio.RecordError:
                continue  # which is told otherwise
            # One column is none, or a table with another delimiter.
            if columns is not None and len(columns) > 1:
                _check_rows(file, len(columns), may_be_empty=may_be_empty)


@contextmanager
def _open(file: str) -> Iterator[TextIO]:
    with open(file, "rb") as content:
        is_gzip = content.read(2) == b"\x1f\x8b"
        content.seek(0)
        plain = gzip.GzipFile(fileobj=content) if is_gzip else content
        yield TextIOWrapper(plain, encoding="utf-8", errors="surrogateescape", newline="")


def _check_rows(file: str, wanted: int, *, may_be_empty: bool) -> None:
    with _open(file) as text:
        reader = csv.reader(text)
        try:
            for row in reader:
                if row and len(row) != wanted:
                    raise EdlError(
                        ErrorCode.DATA_DAMAGED,
                        f"the row has {len(row)} cells, and the header {wanted}: "
                        f"{','.join(row)[:80]!r}",
                        where=f"{file}:{reader.line_num}",
                        remedy="Correct the row: a cell that contains a comma needs quotes. "
                        "edl data inspect --check FILE finds all such rows.",
                    )
                if row and not may_be_empty and not any(map(str.strip, row)):
                    raise EdlError(
                        ErrorCode.DATA_DAMAGED,
                        f"the row has no value: {','.join(row)[:80]!r}",
                        where=f"{file}:{reader.line_num}",
                        remedy="Remove the row: a model would take the defaults for its values, "
                        "and for its label.",
                    )
        except (csv.Error, EOFError, OSError):
            return  # what no reader takes is told by that of the job
