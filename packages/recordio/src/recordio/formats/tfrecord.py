"""TFRecord files behind the reader port, and a writer of them.

Each record is: uint64 length, masked CRC-32C of those 8 bytes, the bytes, masked CRC-32C of the
bytes; all little-endian. A file may be gzip as a whole.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self, cast

from zlib_ng import zlib_ng as zlib

from recordio.errors import DamagedFile, RecordError
from recordio.formats.chunks import MAX_EXPANDED_BYTES
from recordio.formats.crc32c import masked_crc
from recordio.formats.ranges import RangeReader
from recordio.source import Hint, Index
from recordio.storage.files import AtomicFile
from recordio.storage.stream import WINDOW, Stream, is_gzip, streaming

_LENGTH = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_OVERHEAD = _LENGTH.size + _CRC.size
_BLOCK_RECORDS = 1024
"""The number of records in a block of the index."""
_MAX_KNOWN_LENGTHS = 1 << 14
"""The number of lengths that are remembered as checked."""


def looks_like_tfrecord(start: bytes) -> bool:
    """Tell whether these are the first bytes of an uncompressed TFRecord file."""
    if len(start) < _LENGTH.size:
        return False
    _, crc = _LENGTH.unpack_from(start)
    return masked_crc(start[:8]) == int(crc)


def _is_gzip(uri: str, start: bytes) -> bool:
    # A record of 35,615 bytes begins with the same bytes as gzip.
    return is_gzip(uri, start) and not looks_like_tfrecord(start)


class TFRecordSource(RangeReader):
    """A TFRecord file, indexed by its lengths, every 1,024 records."""

    format = "tfrecord"
    columns = None

    def _scan(self) -> Index:
        first, offsets, records, checksum = [], [], 0, 0
        with streaming(self.uri, _is_gzip, self._pin) as stream:
            scanner = _RecordScanner(self.uri, stream, 0)
            while scanner.advance():
                if records % _BLOCK_RECORDS == 0:
                    first.append(records)
                    offsets.append(scanner.offset)
                checksum = int(zlib.crc32(scanner.skip(), checksum))
                records += 1
            return Index(records, scanner.offset, tuple(first), tuple(offsets), checksum)

    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        first, offset = hint
        with streaming(self.uri, _is_gzip, self._pin, (offset, end)) as stream:
            stream.skip_to(offset)
            scanner = _RecordScanner(self.uri, stream, first)
            for _ in range(start - first):
                if not scanner.advance():
                    return
                scanner.skip()
            wanted = stop - start
            while wanted > 0:
                block: list[bytes] = []
                try:
                    scanner.fill(block, wanted)
                except DamagedFile:
                    # The records before the damage are good.
                    if block:
                        yield block
                    raise
                if not block:
                    return
                yield block
                wanted -= len(block)


class _RecordScanner:
    """Goes from record to record through a window of the stream.

    Attributes:
        number: the number of the next record.
        offset: the offset of the next record in the plain content.
    """

    def __init__(self, uri: str, stream: Stream, number: int) -> None:
        self._uri = uri
        self._stream = stream
        self._window = b""
        self._at = 0
        self._known: dict[bytes, int] = {}
        self.number = number
        self.offset = stream.offset
        self._length = 0

    def advance(self) -> bool:
        """Read and check the length of the next record; tell whether there is one."""
        if len(self._window) - self._at < _LENGTH.size and not self._read_more(_LENGTH.size):
            if len(self._window) == self._at:
                return False
            raise self._damage("the file ends within a record's length")
        head = self._window[self._at : self._at + _LENGTH.size]
        length = self._known.get(head)
        if length is None:
            length, crc = _LENGTH.unpack(head)
            if masked_crc(head[:8]) != crc:
                raise self._damage("the CRC of a record's length does not match")
            if len(self._known) < _MAX_KNOWN_LENGTHS:
                self._known[head] = length
        left = self._stream.remaining
        room = MAX_EXPANDED_BYTES if left is None else left + len(self._window) - self._at
        if length + _OVERHEAD > room:
            raise self._damage(
                f"the file ends within a record: {room} of {length + _OVERHEAD} bytes are left"
                if left is not None
                else f"a compressed record of {length} bytes exceeds the limit of {room}"
            )
        self._length = length
        return True

    def fill(self, block: list[bytes], wanted: int) -> None:
        """Append up to ``wanted`` records, as many as a window holds; none at the end."""
        nbytes = 0
        while len(block) < wanted and nbytes < WINDOW and self.advance():
            need = self._length + _OVERHEAD
            if len(self._window) - self._at < need and not self._read_more(need):
                raise self._damage("the file ends within a record")
            begun = self._at
            self._take(block, wanted)
            nbytes += self._at - begun

    def _take(self, block: list[bytes], wanted: int) -> None:
        """Append the records that lie in the window as a whole; the first one's length was read.

        This is the inner loop of reading, so it makes no unnecessary call.
        """
        window, known = self._window, self._known
        begun, at, last = self._at, self._at, len(window) - _CRC.size
        length: int | None = self._length
        found, is_intact = len(block), True
        while length is not None and len(block) < wanted:
            begin = at + _LENGTH.size
            end = begin + length
            if end > last:
                break
            record = window[begin:end]
            if masked_crc(record) != _CRC.unpack_from(window, end)[0]:
                is_intact = False
                break
            block.append(record)
            at = end + _CRC.size
            # Lengths repeat, and a known one has been checked.
            length = known.get(window[at : at + _LENGTH.size])
        self.number += len(block) - found
        self.offset += at - begun
        self._at = at
        if not is_intact:
            raise self._damage("the CRC of a record does not match its bytes")

    def skip(self) -> bytes:
        """Skip the record whose length was read, and return its checksum.

        If possible, the record itself is not read.
        """
        need = self._length + _OVERHEAD
        if self._at + need > len(self._window):
            end = self.offset + need
            self._stream.skip_to(end - _CRC.size)
            checksum = self._stream.read(_CRC.size)
            if len(checksum) < _CRC.size:
                raise self._damage("the file ends within a record")
            self._window, self._at = b"", 0
            self.number, self.offset = self.number + 1, end
        else:
            self._at += need
            self.offset += need
            self.number += 1
            checksum = self._window[self._at - _CRC.size : self._at]
        return checksum

    def _read_more(self, need: int) -> bool:
        """Fill the window until it holds ``need`` bytes; tell whether that succeeded."""
        parts = [self._window[self._at :]]
        held = len(parts[0])
        while held < need and (part := self._stream.read(max(WINDOW, need - held))):
            parts.append(part)
            held += len(part)
        self._window, self._at = b"".join(parts), 0
        return held >= need

    def _damage(self, reason: str) -> DamagedFile:
        return DamagedFile(self._uri, self.number, self.offset, reason, "record")


class TFRecordWriter:
    """Writes a TFRecord file, which appears when the writer is closed.

    Args:
        uri: the path or URI; the file is gzip if it ends in .gz.
    """

    def __init__(self, uri: str) -> None:
        self._uri = str(uri)
        self._atomic: AtomicFile | None = AtomicFile(self._uri)
        gz = self._uri.lower().endswith(".gz")
        self._file: IO[bytes] = (
            cast(IO[bytes], gzip.GzipFile(fileobj=self._atomic.file, mode="wb", mtime=0))
            if gz
            else self._atomic.file
        )
        self.records = 0

    def write(self, record: bytes) -> None:
        """Append a record. If that fails, the whole file is discarded.

        Raises:
            RecordError: the writer is closed.
        """
        if self._atomic is None:
            raise RecordError(f"{self._uri}: the writer is closed")
        record = bytes(record)
        length = struct.pack("<Q", len(record))
        try:
            self._file.write(length + _CRC.pack(masked_crc(length)))
            self._file.write(record)
            self._file.write(_CRC.pack(masked_crc(record)))
        except BaseException:
            self.discard()
            raise
        self.records += 1

    def close(self) -> None:
        """Complete the file, which then appears. A second call does nothing."""
        if self._atomic is None:
            return
        atomic, self._atomic = self._atomic, None
        try:
            if self._file is not atomic.file:
                self._file.close()
        except BaseException:
            atomic.discard()
            raise
        atomic.commit()

    def discard(self) -> None:
        """Discard everything; no file appears."""
        if self._atomic is not None:
            atomic, self._atomic = self._atomic, None
            atomic.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
