"""The reader port: any file of records, read by ranges."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

Hint = tuple[int, int]
"""The first record and the byte offset of a block at or before the range to be read."""


@dataclass(frozen=True, slots=True)
class Index:
    """The positions of a file's blocks; a block is the smallest unit of reading.

    Attributes:
        records: the number of records in the whole file.
        nbytes: the size of the file; of its plain content if it is gzip as a whole.
        first_records: the number of each block's first record, ascending.
        offsets: where each block begins, in bytes of the same content.
        checksum: a checksum of the content, or of the checksums that the file has of all of it.
    """

    records: int
    nbytes: int
    first_records: tuple[int, ...]
    offsets: tuple[int, ...]
    checksum: int = 0

    def block(self, record: int) -> Hint:
        """Return the block that holds a record."""
        at = bisect.bisect_right(self.first_records, record) - 1
        return (self.first_records[at], self.offsets[at]) if at >= 0 else (0, 0)

    def next_block(self, record: int) -> int:
        """Return the first record after the block that holds a record."""
        at = bisect.bisect_right(self.first_records, record)
        return self.first_records[at] if at < len(self.first_records) else self.records

    def end(self, stop: int) -> int:
        """Return the byte after the block that holds the last record before ``stop``."""
        at = bisect.bisect_left(self.first_records, stop)
        return self.offsets[at] if at < len(self.offsets) else self.nbytes


class Source(Protocol):
    """A file of records.

    Every method raises ``DamagedFile`` where the file is damaged and ``UnreadableFile`` where
    it cannot be read.
    """

    @property
    def uri(self) -> str: ...

    @property
    def format(self) -> str:
        """The name of the format: recordio, tfrecord, csv or parquet."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, for CSV."""

    @property
    def version(self) -> str:
        """The version of the file that this source reads; empty until the first read.

        With it, ``open_source`` in another process reads the same, or raises ``ChangedFile``.
        """

    def count(self) -> int:
        """Return the number of records."""

    def index(self) -> Index:
        """Return the index of the blocks; it is made once, as cheaply as the format allows."""

    def place(self, record: int, hint: Hint | None = None) -> str:
        """Return where a record is, for messages: ``FILE:LINE`` of CSV, else ``FILE, record N``.

        Args:
            record: its number, from 0.
            hint: as for ``read_blocks``.
        """

    def check_unchanged(self) -> None:
        """Raise ``ChangedFile`` if the file has another version than this source reads."""

    def read(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[bytes]:
        """Yield the records ``start`` to ``stop`` (exclusive, and at most to the end)."""

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[list[bytes]]:
        """Yield the records of a range in lists, which is faster than one by one.

        Args:
            start, stop: the range.
            hint: the result of ``index().block(start)``, perhaps from another process; with it,
                this process need not index the file.
            end: the result of ``index().end(stop)``: all bytes up to there are fetched from a
                store at the same time, and none beyond. With 0, reading ahead adapts to the reader.
            exact: whether it is an error that the file ends before ``stop``.

        Raises:
            RecordError: the range begins before record 0 or before the hint, or ends too early.
        """
