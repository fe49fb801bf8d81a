"""CSV files behind the reader port: a record is the bytes of a line, without its end."""

from __future__ import annotations

import contextlib
import csv
import gzip
import zlib
from collections.abc import Iterator
from typing import IO

from recordio.errors import DamagedFile
from recordio.source import Hint, Index
from recordio.storage import reading

_EVERY = 1024
"""Records of a block."""


class CsvSource:
    """A CSV file; a quoted field may hold line ends. Empty lines are no records."""

    format = "csv"

    def __init__(self, uri: str, *, header: bool = True) -> None:
        self.uri = uri
        self._header = header
        self._index: Index | None = None
        self._columns: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns, from the header line."""
        if self._header and self._columns is None:
            with self._open() as file:
                _, line = next(self._lines(file, 0), (0, b""))
            text = line.decode("utf-8-sig", errors="replace")
            self._columns = tuple(name.strip() for name in next(csv.reader([text]), []))
        return self._columns

    def count(self) -> int:
        return self.index().records

    def index(self) -> Index:
        if self._index is None:
            first, offsets, records, size = [], [], 0, 0
            with self._open() as file:
                lines = self._lines(file, 0)
                if self._header:
                    next(lines, None)
                for offset, line in lines:
                    if records % _EVERY == 0:
                        first.append(records)
                        offsets.append(offset)
                    records += 1
                    size = offset + len(line)
            self._index = Index(records, size, tuple(first), tuple(offsets))
        return self._index

    def read(self, start: int, stop: int, *, hint: Hint | None = None) -> Iterator[bytes]:
        for block in self.read_blocks(start, stop, hint=hint):
            yield from block

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None
    ) -> Iterator[list[bytes]]:
        at, offset = hint if hint is not None else self.index().block(start)
        block: list[bytes] = []
        with self._open() as file:
            lines = self._lines(file, offset)
            if self._header and offset == 0:
                next(lines, None)
            for _, line in lines:
                if at >= stop:
                    break
                if at >= start:
                    block.append(line)
                    if len(block) == _EVERY:
                        yield block
                        block = []
                at += 1
        if block:
            yield block

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with reading(self.uri) as (file, _):
            if not self.uri.lower().endswith(".gz"):
                yield file
                return
            try:
                with gzip.GzipFile(fileobj=file) as plain:
                    yield plain  # type: ignore[misc]
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DamagedFile(
                    self.uri, None, 0, f"it cannot be decompressed: {error}"
                ) from error

    def _lines(self, file: IO[bytes], offset: int) -> Iterator[tuple[int, bytes]]:
        """Offset and content of each line that is not empty, from an offset on."""
        file.seek(offset)
        number = 0
        while line := file.readline():
            begun = offset
            # An odd number of quotes: a quoted field goes on in the next line.
            while line.count(b'"') % 2:
                more = file.readline()
                if not more:
                    raise DamagedFile(self.uri, number, begun, "a quoted field does not end")
                line += more
            offset += len(line)
            content = line.rstrip(b"\r\n")
            if content:
                yield begun, content
                number += 1
