"""The chunk of a RecordIO file: a header of 20 bytes and a compressed payload.

header   five little-endian uint32: magic 0x01020304, CRC-32 (IEEE) of the compressed bytes,
         compressor (0 none, 1 snappy in its framed stream form, 2 gzip), compressed size,
         number of records
payload  per record a little-endian uint32 length and the bytes; then compressed as a whole
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cramjam

# The same interface as zlib; its CRC-32 is about fourteen times as fast.
from zlib_ng import zlib_ng as zlib

from recordio.errors import DamagedFile, RecordError

MAGIC = 0x01020304
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")
MAX_RECORD_BYTES = 2**32 - 1 - LENGTH.size
MAX_EXPANDED_BYTES = 1 << 30
"""A compressed payload that expands beyond this is refused as a decompression bomb."""

_MAX_COMPRESSED_BYTES = 256 << 20
"""A longer payload is written uncompressed, which keeps far from the limit above, and reads
faster."""


class Compressor(IntEnum):
    """The compression of a chunk's payload."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2


# The highest compression ratio that each format allows.
_MAX_RATIO = {Compressor.NONE: 1, Compressor.SNAPPY: 32, Compressor.GZIP: 1032}


@dataclass(frozen=True, slots=True)
class Header:
    """A chunk's header, and the chunk's position in its file.

    Attributes:
        number: the number of the chunk in the file; None if reading did not begin at the first.
        offset: the offset of the header in bytes.
        crc: the checksum of the stored payload.
        compressor: the compression of the payload.
        size: the size of the stored payload in bytes.
        records: the number of records.
    """

    number: int | None
    offset: int
    crc: int
    compressor: Compressor
    size: int
    records: int

    @property
    def stop(self) -> int:
        """The offset of the byte after the chunk."""
        return self.offset + HEADER.size + self.size

    @property
    def max_plain_bytes(self) -> int:
        """The largest size that the expanded payload can have."""
        return min(MAX_EXPANDED_BYTES, self.size * _MAX_RATIO[self.compressor] + 1024)


def parse_header(
    content: bytes, uri: str, number: int | None, offset: int, file_size: int
) -> Header:
    """Parse the header of chunk ``number`` at ``offset``.

    Raises:
        DamagedFile: it is truncated, not a header, or announces an impossible payload.
    """

    def error(reason: str) -> DamagedFile:
        return DamagedFile(uri, number, offset, reason)

    if len(content) < HEADER.size:
        raise error(f"the file ends within a header, after {len(content)} of 20 bytes")
    magic, crc, compressor, size, records = HEADER.unpack(content)
    if magic != MAGIC:
        raise error(f"this is not a RecordIO chunk (magic 0x{magic:08x})")
    room = file_size - offset - HEADER.size
    if compressor > max(Compressor):
        # The older layout: magic, number of records, CRC-32C, compressor from 1, size.
        if size in (1, 2, 3) and records <= room:
            raise error(
                "this is the older, incompatible RecordIO layout; write the file again with a "
                "current writer"
            )
        raise error(f"unknown compressor {compressor}; 0, 1 and 2 are known")
    if size > room:
        raise error(f"the file ends within a chunk: {room} of {size} bytes are left")
    header = Header(number, offset, crc, Compressor(compressor), size, records)
    if records and LENGTH.size * records > size * _MAX_RATIO[header.compressor]:
        raise error(f"a chunk of {size} bytes cannot hold {records} records")
    return header


def damage(header: Header, uri: str, reason: str) -> DamagedFile:
    """Return the error for a damaged chunk."""
    return DamagedFile(uri, header.number, header.offset, reason)


def check_crc(header: Header, payload: bytes | memoryview, uri: str) -> None:
    """Compare the stored bytes of a chunk with its checksum.

    Raises:
        DamagedFile: they differ.
    """
    if len(payload) != header.size:
        raise damage(
            header,
            uri,
            f"the file ends within a chunk, after {len(payload)} of {header.size} bytes",
        )
    if zlib.crc32(payload) != header.crc:
        raise damage(header, uri, "the CRC of the chunk does not match its bytes")


def encode(records: Sequence[bytes], compressor: Compressor) -> list[bytes]:
    """Encode a whole chunk of records, as pieces to be written one after another.

    Raises:
        RecordError: a record, or the chunk, is larger than the format's uint32 can say.
    """
    parts: list[bytes] = []
    for record in records:
        check_length(record)
        parts.append(LENGTH.pack(len(record)))
        parts.append(record)
    nbytes = sum(map(len, parts))
    if nbytes > _MAX_COMPRESSED_BYTES:
        compressor = Compressor.NONE
    match compressor:
        case Compressor.NONE:
            pass
        case Compressor.SNAPPY:
            parts = [bytes(cramjam.snappy.compress(b"".join(parts)))]
        case Compressor.GZIP:
            parts = [zlib.compress(b"".join(parts), 6, 31)]
    size = sum(map(len, parts))
    if size >= 2**32:
        raise RecordError(f"a chunk of {size} bytes exceeds the format's limit of 4 GiB")
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [HEADER.pack(MAGIC, crc, compressor, size, len(records)), *parts]


def check_length(record: bytes) -> None:
    """Check that the format can hold a record.

    Raises:
        RecordError: it is too long.
    """
    if len(record) > MAX_RECORD_BYTES:
        raise RecordError(
            f"a record of {len(record)} bytes exceeds the format's limit of {MAX_RECORD_BYTES}; "
            "split it"
        )
