"""TFRecord files behind the reader port, and a writer of them.

Each record is: uint64 length, masked CRC-32C of those 8 bytes, the bytes, masked CRC-32C of the
bytes; all little-endian. A file whose name ends in .gz is gzip as a whole.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

from recordio.crc32c import masked_crc
from recordio.errors import DamagedFile, RecordError
from recordio.source import Hint, Index
from recordio.storage import AtomicFile, reading

_LENGTH = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_EVERY = 1024
"""Records of a block."""


def looks_like_tfrecord(start: bytes) -> bool:
    """Whether these are the first bytes of an uncompressed TFRecord file."""
    if len(start) < _LENGTH.size:
        return False
    _, crc = _LENGTH.unpack_from(start)
    return masked_crc(start[:8]) == int(crc)


class TFRecordSource:
    """A TFRecord file; indexed by its lengths, every 1,024 records."""

    format = "tfrecord"
    columns = None

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._index: Index | None = None

    def count(self) -> int:
        return self.index().records

    def index(self) -> Index:
        if self._index is None:
            first, offsets, records, offset = [], [], 0, 0
            with self._open() as (file, size):
                while (length := self._length(file, records, offset)) is not None:
                    if size is not None and offset + 16 + length > size:
                        raise self._damaged(records, offset, "the file ends within a record")
                    if records % _EVERY == 0:
                        first.append(records)
                        offsets.append(offset)
                    self._skip(file, records, offset, length + 4)
                    records += 1
                    offset += 16 + length
            self._index = Index(records, offset, tuple(first), tuple(offsets))
        return self._index

    def read(self, start: int, stop: int, *, hint: Hint | None = None) -> Iterator[bytes]:
        for block in self.read_blocks(start, stop, hint=hint):
            yield from block

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None
    ) -> Iterator[list[bytes]]:
        at, offset = hint if hint is not None else self.index().block(start)
        block: list[bytes] = []
        with self._open() as (file, size):
            file.seek(offset)
            while at < stop and (length := self._length(file, at, offset)) is not None:
                if size is not None and offset + 16 + length > size:
                    raise self._damaged(at, offset, "the file ends within a record")
                if at < start:
                    self._skip(file, at, offset, length + 4)
                else:
                    block.append(self._record(file, at, offset, length))
                    if len(block) == _EVERY:
                        yield block
                        block = []
                at += 1
                offset += 16 + length
        if block:
            yield block

    def _damaged(self, record: int, offset: int, reason: str) -> DamagedFile:
        return DamagedFile(self.uri, record, offset, reason)

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], int | None]]:
        """The plain content, and its size where that is known."""
        with reading(self.uri) as (file, size):
            if not self.uri.lower().endswith(".gz"):
                yield file, size
                return
            try:
                with gzip.GzipFile(fileobj=file) as plain:
                    yield plain, None  # type: ignore[misc]
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self._damaged(0, 0, f"it cannot be decompressed: {error}") from error

    def _length(self, file: IO[bytes], record: int, offset: int) -> int | None:
        """Length of the next record; None at the end of the file."""
        content = file.read(_LENGTH.size)
        if not content:
            return None
        if len(content) < _LENGTH.size:
            raise self._damaged(record, offset, "the file ends within a record's length")
        length, crc = _LENGTH.unpack(content)
        if masked_crc(content[:8]) != crc:
            raise self._damaged(record, offset, "the CRC of a record's length does not fit")
        return int(length)

    def _record(self, file: IO[bytes], record: int, offset: int, length: int) -> bytes:
        content = file.read(length)
        crc = file.read(4)
        if len(content) < length or len(crc) < 4:
            raise self._damaged(record, offset, "the file ends within a record")
        if masked_crc(content) != _CRC.unpack(crc)[0]:
            raise self._damaged(record, offset, "the CRC of a record does not fit its bytes")
        return content

    def _skip(self, file: IO[bytes], record: int, offset: int, nbytes: int) -> None:
        file.seek(nbytes, 1)


class TFRecordWriter:
    """Writes a TFRecord file that appears, whole, when the writer is closed."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._atomic: AtomicFile | None = AtomicFile(place)
        gz = place.lower().endswith(".gz")
        self._file: IO[bytes] = (
            gzip.GzipFile(fileobj=self._atomic.file, mode="wb", mtime=0)  # type: ignore[assignment]
            if gz
            else self._atomic.file
        )

    def write(self, record: bytes) -> None:
        if self._atomic is None:
            raise RecordError(f"{self._place}: the writer is closed")
        length = struct.pack("<Q", len(record))
        self._file.write(length + _CRC.pack(masked_crc(length)))
        self._file.write(record)
        self._file.write(_CRC.pack(masked_crc(record)))

    def close(self) -> None:
        if self._atomic is not None:
            atomic, self._atomic = self._atomic, None
            if self._file is not atomic.file:
                self._file.close()
            atomic.commit()

    def discard(self) -> None:
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
