"""RecordIO files behind the reader port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

# The same interface as zlib; its CRC-32 is about fourteen times as fast.
from zlib_ng import zlib_ng as zlib

from recordio.errors import DamagedFile
from recordio.formats.chunks import HEADER, Header, parse_header
from recordio.formats.payload import PayloadReader
from recordio.formats.ranges import RangeReader
from recordio.source import Hint, Index
from recordio.storage.files import AHEAD, reading
from recordio.storage.range_cache import RangeCache

_HEADERS_AHEAD = 256 << 10


class RecordIOSource(RangeReader):
    """A RecordIO file; its blocks are its chunks, indexed by their headers alone."""

    format = "recordio"
    columns = None

    def __init__(self, uri: str, version: str = "", cache: RangeCache | None = None) -> None:
        super().__init__(uri, version, cache)
        self._headers: tuple[Header, ...] | None = None

    def headers(self) -> tuple[Header, ...]:
        """Return the headers of all chunks; no payload is read."""
        if self._headers is None:
            with reading(self.uri, ahead=_HEADERS_AHEAD, pin=self._pin) as (file, size):
                self._headers = tuple(_headers(self.uri, file, size, 0, 0))
        return self._headers

    def _scan(self) -> Index:
        first, records, checksum = [], 0, 0
        headers = self.headers()
        for header in headers:
            first.append(records)
            records += header.records
            checksum = int(zlib.crc32(header.crc.to_bytes(4, "little"), checksum))
        nbytes = headers[-1].stop if headers else 0
        offsets = tuple(header.offset for header in headers)
        return Index(records, nbytes, tuple(first), offsets, checksum)

    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        first, offset = hint
        number = 0 if offset == 0 else None
        with reading(self.uri, ahead=AHEAD, pin=self._pin, wanted=(offset, end)) as (file, size):
            payloads = PayloadReader(self.uri, file)
            try:
                for header in _headers(self.uri, file, size, offset, number):
                    if first + header.records > start:
                        records = payloads.records(header, max(0, start - first), stop - first)
                        if records:
                            yield records
                    first += header.records
                    if first >= stop:
                        return
            except DamagedFile as error:
                if error.chunk is None:
                    raise self._with_number(error) from None
                raise

    def _with_number(self, error: DamagedFile) -> DamagedFile:
        """Return an error with the number of its chunk, which is unknown after a hint."""
        try:
            with reading(self.uri, ahead=_HEADERS_AHEAD, pin=self._pin) as (file, size):
                for header in _headers(self.uri, file, size, 0, 0):
                    if header.stop == error.offset and header.number is not None:
                        return DamagedFile(self.uri, header.number + 1, error.offset, error.reason)
        except DamagedFile:
            pass  # an earlier chunk is damaged, too, or the hint belonged to another file
        return error


def _headers(
    uri: str, file: IO[bytes], size: int, offset: int, number: int | None
) -> Iterator[Header]:
    """Yield the headers from an offset on; the file is then at the payload if it has records.

    No caller reads a chunk without records, so its payload is checked here.
    """
    while offset < size:
        file.seek(offset)
        header = parse_header(file.read(HEADER.size), uri, number, offset, size)
        if not header.records:
            PayloadReader(uri, file).records(header, 0, 0)
        yield header
        offset = header.stop
        number = None if number is None else number + 1
