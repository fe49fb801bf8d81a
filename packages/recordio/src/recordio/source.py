"""The reader port: any file of records, read by ranges."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

Hint = tuple[int, int]
"""First record and byte offset of a block at or before the range that is to be read."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where the blocks of a file are; a block is the least that is read at once.

    Attributes:
        records: in the whole file.
        nbytes: size of the file; of its plain content if it is gzip as a whole.
        first_records: number of each block's first record, ascending.
        offsets: where each block begins, in bytes of the same.
    """

    records: int
    nbytes: int
    first_records: tuple[int, ...]
    offsets: tuple[int, ...]

    def block(self, record: int) -> Hint:
        """The block that holds a record."""
        at = bisect.bisect_right(self.first_records, record) - 1
        return (self.first_records[at], self.offsets[at]) if at >= 0 else (0, 0)

    def end(self, stop: int) -> int:
        """The byte after the block that holds the last record before ``stop``."""
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
        """recordio, tfrecord or csv."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns, for CSV."""

    @property
    def version(self) -> str:
        """Of a file in a store: what all readings of this source see; empty until the first.

        ``open_source`` of another process sees the same with it, or raises ``UnreadableFile``.
        """

    def count(self) -> int:
        """Number of records."""

    def index(self) -> Index:
        """Where the blocks are; made once, as cheaply as the format allows."""

    def read(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[bytes]:
        """Records ``start`` to ``stop`` (exclusive, and at most to the end)."""

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None, end: int = 0, exact: bool = False
    ) -> Iterator[list[bytes]]:
        """The same, some at a time: the quick way.

        Args:
            hint: from ``index().block(start)``, also of another process; then the file need not
                be indexed here.
            end: from ``index().end(stop)``: all bytes up to there are fetched from a store at the
                same time, and none beyond. 0: as many as the reading shows to be needed.
            exact: whether it is an error that the file ends before ``stop``.

        Raises:
            RecordError: the range begins before record 0 or before the hint, or ends too early.
        """
