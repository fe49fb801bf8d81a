"""RecordIO files behind the reader port."""

from __future__ import annotations

from collections.abc import Iterator

from recordio.chunks import HEADER, Header, decode, parse_header
from recordio.source import Hint, Index
from recordio.storage import reading


class RecordIOSource:
    """A RecordIO file; its blocks are its chunks, indexed by their headers alone."""

    format = "recordio"
    columns = None

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._headers: list[Header] | None = None

    def headers(self) -> list[Header]:
        """The header of every chunk; no payload is read."""
        if self._headers is None:
            found: list[Header] = []
            with reading(self.uri) as (file, size):
                offset = 0
                while offset < size:
                    file.seek(offset)
                    content = file.read(HEADER.size)
                    found.append(parse_header(content, self.uri, len(found), offset, size))
                    offset = found[-1].stop
            self._headers = found
        return self._headers

    def count(self) -> int:
        return sum(header.records for header in self.headers())

    def index(self) -> Index:
        first, at = [], 0
        headers = self.headers()
        for header in headers:
            first.append(at)
            at += header.records
        size = headers[-1].stop if headers else 0
        return Index(at, size, tuple(first), tuple(header.offset for header in headers))

    def read(self, start: int, stop: int, *, hint: Hint | None = None) -> Iterator[bytes]:
        for block in self.read_blocks(start, stop, hint=hint):
            yield from block

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None
    ) -> Iterator[list[bytes]]:
        first, offset = hint if hint is not None else self.index().block(start)
        number = 0
        if self._headers is not None:
            number = next((h.number for h in self._headers if h.offset == offset), 0)
        with reading(self.uri) as (file, size):
            while offset < size and first < stop:
                file.seek(offset)
                content = file.read(HEADER.size)
                header = parse_header(content, self.uri, number, offset, size)
                if first + header.records > start:
                    records = decode(header, file.read(header.size), self.uri)
                    wanted = records[max(0, start - first) : stop - first]
                    if wanted:
                        yield wanted
                first += header.records
                offset, number = header.stop, number + 1
