"""Writes RecordIO files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal, Self

from recordio.errors import RecordError
from recordio.formats.chunks import (
    HEADER,
    Compressor,
    check_crc,
    check_length,
    encode,
    parse_header,
)
from recordio.storage.files import AtomicFile, reading

CHUNK_BYTES = 1 << 20
"""The plain bytes of a chunk: enough to compress well, few enough to read a part of a file."""


class Writer:
    """Writes records to a file, which appears when the writer is closed.

    Args:
        uri: the path or URI.
        compressor: the compression of each chunk.
        chunk_bytes: the plain bytes after which a chunk is closed. A longer record gets a chunk of
            its own.
        chunk_records: the records after which a chunk is closed; None for no such limit.
    """

    def __init__(
        self,
        uri: str,
        *,
        compressor: Literal["none", "snappy", "gzip"] = "snappy",
        chunk_bytes: int = CHUNK_BYTES,
        chunk_records: int | None = None,
    ) -> None:
        try:
            self._compressor = Compressor[compressor.upper()]
        except KeyError:
            raise RecordError(
                f"unknown compressor {compressor!r}; use none, snappy or gzip"
            ) from None
        if chunk_bytes < 1 or (chunk_records is not None and chunk_records < 1):
            raise RecordError("chunk_bytes and chunk_records must be at least 1")
        self._chunk_bytes = chunk_bytes
        self._chunk_records = chunk_records
        self._uri = str(uri)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._file: AtomicFile | None = AtomicFile(self._uri)
        self.records = 0

    def write(self, record: bytes) -> None:
        """Append a record. If that fails, the whole file is discarded.

        Raises:
            RecordError: the writer is closed, or the record is over 4 GiB.
        """
        if self._file is None:
            raise RecordError(f"{self._uri}: the writer is closed")
        check_length(record)
        if self._pending and self._pending_bytes + len(record) + 4 > self._chunk_bytes:
            self._flush()
        self._pending.append(bytes(record))
        self._pending_bytes += len(record) + 4
        self.records += 1
        if self._pending_bytes >= self._chunk_bytes or len(self._pending) == self._chunk_records:
            self._flush()

    def close(self) -> None:
        """Write the pending records and complete the file, which then appears.

        A second call does nothing.
        """
        if self._file is None:
            return
        self._flush()
        file, self._file = self._file, None
        file.commit()

    def discard(self) -> None:
        """Discard everything; no file appears."""
        if self._file is not None:
            file, self._file = self._file, None
            file.discard()

    def _flush(self) -> None:
        assert self._file is not None
        if not self._pending:
            return
        try:
            # After a failure it is unknown how much of the chunk is on the disk.
            for piece in encode(self._pending, self._compressor):
                self._file.file.write(piece)
        except BaseException:
            self.discard()
            raise
        self._pending, self._pending_bytes = [], 0

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


def _chunks(uri: str) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the chunks of a file: header, payload, and number of records.

    As this is a generator, an error of the writer is not mistaken for one of this file.
    """
    with reading(uri) as (file, size):
        offset, number = 0, 0
        while offset < size:
            content = file.read(HEADER.size)
            header = parse_header(content, uri, number, offset, size)
            payload = file.read(header.size)
            check_crc(header, payload, uri)
            yield content, payload, header.records
            offset, number = header.stop, number + 1


def concatenate(uris: Sequence[str], output: str) -> int:
    """Join RecordIO files into one, chunk by chunk; return the number of records.

    The output appears when it is complete.

    Raises:
        DamagedFile: an input is damaged; the CRC of every chunk is checked.
    """
    joined = AtomicFile(output)
    records = 0
    try:
        for uri in uris:
            for header, payload, found in _chunks(uri):
                joined.file.write(header)
                joined.file.write(payload)
                records += found
    except BaseException:
        joined.discard()
        raise
    joined.commit()
    return records
