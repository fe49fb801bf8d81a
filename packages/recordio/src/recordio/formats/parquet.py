"""Parquet files behind the reader port: a record is a row, as a serialized tf.Example.

Only a whole row group can be decoded, so decoded groups are kept for the next ranges.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

from zlib_ng import zlib_ng as zlib

from recordio.errors import DamagedFile, MissingPackage
from recordio.example_rows import RowEncoder, storable_columns
from recordio.formats.ranges import RangeReader
from recordio.recently_used import RecentlyUsed
from recordio.source import Hint, Index
from recordio.storage.files import AHEAD, reading
from recordio.storage.range_cache import RangeCache
from recordio.storage.stores import is_uri

MAGIC = b"PAR1"

_FOOTER_BYTES = 64 << 10
"""The size of the first request to a store, for the footer."""

_BLOCK_ROWS = 1024
"""Rows that are encoded at once."""

_KEPT_BYTES = 1 << 30
"""Of decoded row groups, of all files."""

_groups: RecentlyUsed[tuple[str, str, int], RowEncoder] = RecentlyUsed(_KEPT_BYTES)
"""The row groups that were decoded last, by file, version and number."""


class ParquetSource(RangeReader):
    """A Parquet file; its blocks are its row groups.

    Columns of a type that no tf.Example can hold are left out.
    """

    format = "parquet"
    columns = None

    def __init__(self, uri: str, version: str = "", cache: RangeCache | None = None) -> None:
        super().__init__(uri, version, cache)
        self._metadata: Any = None
        self._decoding = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoding": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._decoding = threading.Lock()

    def metadata(self) -> Any:
        """Return the ``pyarrow.parquet.FileMetaData``; None of an empty file."""
        if self._metadata is None:
            with self._open() as (table, _):
                self._metadata = table and table.metadata
        return self._metadata

    def _scan(self) -> Index:
        metadata = self.metadata()
        if metadata is None:
            return Index(0, 0, (), ())
        groups = list(_groups_of(metadata))
        with reading(self.uri, ahead=AHEAD, pin=self._pin) as (file, size):
            # An object in a store has a version. Not all of it is read for a checksum.
            start = max(0, size - metadata.serialized_size) if is_uri(self.uri) else 0
            checksum = _checksum(file, start)
        return Index(
            metadata.num_rows,
            size,
            tuple(first for _, first, _ in groups),
            tuple(offset for _, _, offset in groups),
            checksum,
        )

    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        metadata = self.metadata()
        groups = list(_groups_of(metadata)) if metadata is not None else []
        at = max(0, bisect.bisect_right(groups, start, key=lambda group: group[1]) - 1)
        for number, first, _ in groups[at:]:
            if first >= stop:
                return
            rows = self._decode(number)
            last = min(stop - first, metadata.row_group(number).num_rows)
            for begin in range(max(0, start - first), last, _BLOCK_ROWS):
                yield rows.encode(begin, min(begin + _BLOCK_ROWS, last))

    def _decode(self, number: int) -> RowEncoder:
        """Return the rows of a row group."""
        key = (self.uri, self.version, number)
        with self._decoding:  # two threads would decode the same twice
            rows = _groups.get(key)
            if rows is not None:
                self.check_unchanged()
                return rows
            with self._open(number, _bytes_of(self._metadata.row_group(number))) as (opened, _):
                columns = storable_columns(opened.schema_arrow)
                rows = RowEncoder(opened.read_row_group(number, columns=columns))
            _groups.add((self.uri, self.version, number), rows, rows.nbytes)
            return rows

    @contextlib.contextmanager
    def _open(
        self, number: int | None = None, wanted: tuple[int, int] = (0, 0)
    ) -> Iterator[tuple[Any, int]]:
        """Open the file as a ``pyarrow.parquet.ParquetFile``, which is None if it is empty.

        Args:
            number: of the row group to be read, for messages.
            wanted: its bytes.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise MissingPackage(self.uri, "pyarrow") from error
        ahead = AHEAD if number is not None else _FOOTER_BYTES
        with reading(self.uri, ahead=ahead, pin=self._pin, wanted=wanted) as (file, size):
            if not size:
                yield None, 0
                return
            try:
                yield (
                    parquet.ParquetFile(
                        file, metadata=self._metadata, page_checksum_verification=True
                    ),
                    size,
                )
            except (pyarrow.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno:  # of the disk, not of the content
                    raise
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise DamagedFile(self.uri, number, wanted[0], reason, "row group") from error


def _groups_of(metadata: Any) -> Iterator[tuple[int, int, int]]:
    """Yield number, first row and offset of each row group that has rows."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    firsts = itertools.accumulate((group.num_rows for group in groups), initial=0)
    for number, (group, first) in enumerate(zip(groups, firsts, strict=False)):
        if group.num_rows:
            yield number, first, _bytes_of(group)[0]


def _bytes_of(group: Any) -> tuple[int, int]:
    """Return where the pages of a row group begin and end."""
    columns = [group.column(number) for number in range(group.num_columns)]
    begins = [
        min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        for column in columns
    ]
    begin = min(begins, default=len(MAGIC))
    return begin, begin + sum(column.total_compressed_size for column in columns)


def _checksum(file: Any, start: int) -> int:
    """Return the CRC-32 of a file from an offset to its end."""
    file.seek(start)
    checksum = 0
    while window := file.read(AHEAD):
        checksum = int(zlib.crc32(window, checksum))
    return checksum
