"""Reads the records of a chunk: checks, expands and splits its payload.

Memory is reused for the next chunk: the page faults of fresh memory would cost more than the rest
of the reading.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import IO

import cramjam
from zlib_ng import zlib_ng as zlib

from recordio.formats.chunks import (
    LENGTH,
    MAX_EXPANDED_BYTES,
    Compressor,
    Header,
    check_crc,
    damage,
)
from recordio.formats.crc32c import masked_crc
from recordio.storage.stored_file import StoredFile

_PIECE = 256 << 10
_MAX_KEPT_BYTES = 64 << 20
"""The size of a buffer that is reused; a larger one is freed after its chunk."""

_SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_BLOCK = 1 << 16


class PayloadReader:
    """Reads the payloads of chunks, one at a time.

    Args:
        uri: the file, for messages.
        file: the open file, which is at the first byte of a payload when a method is called.
    """

    def __init__(self, uri: str, file: IO[bytes]) -> None:
        self._uri = uri
        self._file = file
        self._buffer = io.BytesIO()
        self._capacity = 0

    def records(self, header: Header, start: int, stop: int) -> list[bytes]:
        """Return the records ``start`` to ``stop`` of a chunk, counted within it.

        The stored bytes are always checked as a whole; they are expanded no further than to the
        last record that is wanted.

        Raises:
            DamagedFile: the CRC, the compressed stream or a length is wrong.
        """
        stop = min(stop, header.records)
        if header.compressor is Compressor.NONE:
            if (part := self._read_in_place(header)) is not None:
                found = self._split(header, io.BytesIO(part[0]), part[1], header.size, stop)
                return found[start:] if start else found
            nbytes = self._read_plain(header)
        else:
            payload = self._file.read(header.size)
            check_crc(header, payload, self._uri)
            if stop < header.records and header.size > _PIECE:
                nbytes = self._expand_prefix(header, payload, stop)
            elif header.compressor is Compressor.SNAPPY:
                nbytes = self._expand_snappy(header, payload)
            else:
                nbytes = self._fill(inflate_whole(header, payload, self._uri))
        found = self._split(header, self._buffer, 0, nbytes, stop)
        if self._capacity > _MAX_KEPT_BYTES:
            self._buffer, self._capacity = io.BytesIO(), 0
        return found[start:] if start else found

    def _read_in_place(self, header: Header) -> tuple[bytes, int] | None:
        """Return the buffer of a store's answer that holds an uncompressed payload, and its offset.

        The buffer holds one more byte, so that reading past the end is noticed.
        """
        if not isinstance(self._file, StoredFile):
            return None
        part = self._file.read_in_place(header.size, beyond=1)
        if part is not None:
            content, at = part
            with memoryview(content) as view:
                check_crc(header, view[at : at + header.size], self._uri)
        return part

    def _read_plain(self, header: Header) -> int:
        """Read an uncompressed payload into the buffer."""
        self._reserve(header.size)
        at = 0
        with self._buffer.getbuffer() as whole, whole[: header.size] as view:
            while at < header.size:
                got = self._file.readinto(view[at:])  # type: ignore[attr-defined]  # binary
                if not got:
                    break
                at += got
            check_crc(header, view[:at], self._uri)
        return header.size

    def _expand_snappy(self, header: Header, payload: bytes) -> int:
        """Expand a whole snappy stream into the buffer, and return its plain size."""
        nbytes = sum(size for _, _, size in frames(header, payload, self._uri))
        self._reserve(nbytes)
        if nbytes:
            with self._buffer.getbuffer() as whole, whole[:nbytes] as view:
                try:
                    got = cramjam.snappy.decompress_into(payload, view)
                except cramjam.DecompressionError as error:
                    raise self._expansion_error(header, error) from error
            if got != nbytes:
                raise damage(header, self._uri, "the snappy stream of the payload is incomplete")
        return nbytes

    def _expand_prefix(self, header: Header, payload: bytes, stop: int) -> int:
        """Expand the first ``stop`` records of a payload into the buffer; return its plain size."""
        if header.compressor is Compressor.SNAPPY:
            pieces = self._expand_frames(header, payload)
        else:
            pieces = inflate(header, payload, self._uri)
        plain = bytearray()
        at = found = 0
        for piece in pieces:
            plain += piece
            while found < stop and at + LENGTH.size <= len(plain):
                end = at + LENGTH.size + LENGTH.unpack_from(plain, at)[0]
                if end > len(plain):
                    break
                at, found = end, found + 1
            if found == stop:
                break
        return self._fill(plain)

    def _expand_frames(self, header: Header, payload: bytes) -> Iterator[bytes]:
        """Expand the frames of a snappy stream one by one."""
        for kind, at, size in frames(header, payload, self._uri):
            length = int.from_bytes(payload[at + 1 : at + 4], "little")
            (crc,) = LENGTH.unpack_from(payload, at + 4)
            content = payload[at + 8 : at + 4 + length]
            if kind == 0:
                try:
                    content = bytes(cramjam.snappy.decompress_raw(content))
                except cramjam.DecompressionError as error:
                    raise self._expansion_error(header, error) from error
            if len(content) != size or masked_crc(content) != crc:
                raise damage(header, self._uri, "a frame of the snappy stream is damaged")
            yield content

    def _fill(self, plain: bytes | bytearray) -> int:
        self._reserve(len(plain))
        self._buffer.seek(0)
        self._buffer.write(plain)
        return len(plain)

    def _reserve(self, nbytes: int) -> None:
        """Make room for ``nbytes`` and one more, so that reading past the end is noticed."""
        if self._capacity <= nbytes:
            self._capacity = nbytes + nbytes // 4 + 1
            self._buffer = io.BytesIO()
            self._buffer.seek(self._capacity - 1)
            self._buffer.write(b"\0")

    def _split(
        self, header: Header, buffer: io.BytesIO, begin: int, nbytes: int, stop: int
    ) -> list[bytes]:
        """Return the first ``stop`` records of a payload that begins at ``begin`` in a buffer."""
        buffer.seek(begin)
        read, unpack = buffer.read, LENGTH.unpack
        try:
            records = [read(unpack(read(4))[0]) for _ in range(stop)]
        except struct.error:
            records, is_past_end = [], True
        else:
            is_past_end = buffer.tell() > begin + nbytes
        if is_past_end:
            raise damage(
                header,
                self._uri,
                f"a record is longer than its chunk of {nbytes} uncompressed bytes",
            )
        left = begin + nbytes - buffer.tell()
        if left and stop == header.records:
            raise damage(
                header, self._uri, f"{left} bytes are left over after {header.records} records"
            )
        return records

    def _expansion_error(self, header: Header, error: Exception) -> Exception:
        return damage(header, self._uri, f"the payload cannot be decompressed: {error}")


def frames(header: Header, payload: bytes, uri: str) -> list[tuple[int, int, int]]:
    """Return the data frames of a snappy stream: kind (0 compressed, 1 plain), offset, plain size.

    Raises:
        DamagedFile: it is not a snappy stream, or expands too far.
    """
    if not payload:
        return []
    if not payload.startswith(_SNAPPY_START):
        raise damage(header, uri, "the payload is not a framed snappy stream")
    found: list[tuple[int, int, int]] = []
    at, total, end = len(_SNAPPY_START), 0, len(payload)
    while at < end:
        kind = payload[at]
        length = int.from_bytes(payload[at + 1 : at + 4], "little")
        stop = at + 4 + length
        if at + 4 > end or stop > end or (kind < 2 and length < 5):
            raise damage(header, uri, "the snappy stream is truncated")
        if kind < 2:
            size = length - 4 if kind else _varint(payload, at + 8)
            total += size
            if size > _SNAPPY_BLOCK or total > MAX_EXPANDED_BYTES:
                raise damage(header, uri, "the snappy stream expands beyond its format's limit")
            found.append((kind, at, size))
        elif kind < 0x80:
            raise damage(header, uri, f"the snappy stream has a frame of unknown kind {kind}")
        at = stop
    return found


def _varint(content: bytes, at: int) -> int:
    """Decode a little-endian number of seven bits a byte, at most three bytes here."""
    value = 0
    for shift, byte in zip((0, 7, 14), content[at : at + 3], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    return 1 << 30


def inflate_whole(header: Header, payload: bytes, uri: str) -> bytes:
    """Expand a whole gzip payload."""
    pieces = list(inflate(header, payload, uri, header.max_plain_bytes))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def inflate(header: Header, payload: bytes, uri: str, piece: int = _PIECE) -> Iterator[bytes]:
    """Expand a gzip payload of one or more members, in pieces of limited size.

    Raises:
        DamagedFile: the stream is wrong, or expands too far.
    """
    total = 0
    while payload:
        stream = zlib.decompressobj(wbits=31)
        while not stream.eof:
            try:
                plain = stream.decompress(payload, piece)
            except zlib.error as error:  # type: ignore[misc]  # typed as Any
                raise damage(header, uri, f"the payload cannot be decompressed: {error}") from error
            payload = stream.unconsumed_tail
            total += len(plain)
            if total > MAX_EXPANDED_BYTES:
                raise damage(header, uri, f"the payload expands beyond {MAX_EXPANDED_BYTES} bytes")
            if plain:
                yield plain
            elif not payload and not stream.eof:
                raise damage(header, uri, "the gzip stream is truncated")
        payload = stream.unused_data
