"""Finds rows of CSV files that have more or fewer cells than the header, before a job starts."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import recordio
from edl.adapters import data_files
from edl.core.locations import scheme
from edl_proto.errors import EdlError, ErrorCode

_MAX_BYTES = 16 << 20
"""Of all files together: half a second. ``edl data inspect --check`` reads the rest."""


def check(patterns: Sequence[str], form: str, option: str) -> None:
    """Check the rows of files on this machine, up to a size that delays no job.

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
                _check_rows(file, len(columns))


def _check_rows(file: str, wanted: int) -> None:
    with open(file, newline="", encoding="utf-8", errors="surrogateescape") as text:
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
        except csv.Error:
            return  # what no reader takes is told by that of the job
