"""The chunk of a RecordIO file: a header of 20 bytes and a compressed payload.

header   five little-endian uint32: magic 0x01020304, CRC-32 (IEEE) of the compressed bytes,
         compressor (0 none, 1 snappy in its framed stream form, 2 gzip), compressed size,
         number of records
payload  per record a little-endian uint32 length and the bytes; then compressed as a whole
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cramjam

from recordio.errors import DamagedFile, RecordError

MAGIC = 0x01020304
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")
MAX_RECORD_BYTES = 2**32 - 1 - LENGTH.size
# No compressor of this format shrinks further than about a thousandfold, so a payload that grows
# beyond this is a bomb or damage.
_MAX_RATIO = 1100
_SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"


class Compressor(IntEnum):
    """How a chunk's payload is compressed."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2


@dataclass(frozen=True, slots=True)
class Header:
    """A chunk's header, and where the chunk stands in its file."""

    number: int
    offset: int
    crc: int
    compressor: Compressor
    size: int
    records: int

    @property
    def stop(self) -> int:
        """Offset of the byte after the chunk."""
        return self.offset + HEADER.size + self.size


def parse_header(content: bytes, uri: str, number: int, offset: int, file_size: int) -> Header:
    """Read the header of chunk ``number`` at ``offset``.

    Raises:
        DamagedFile: it is cut short or not a header.
    """

    def damaged(reason: str) -> DamagedFile:
        return DamagedFile(uri, number, offset, reason)

    if len(content) < HEADER.size:
        raise damaged(f"the file ends within a header, after {len(content)} of 20 bytes")
    magic, crc, compressor, size, records = HEADER.unpack(content)
    if magic != MAGIC:
        raise damaged(f"this is no RecordIO chunk (magic 0x{magic:08x})")
    room = file_size - offset - HEADER.size
    if compressor > 2 or size > room:
        if compressor in (1, 2, 3) and size <= room:
            raise damaged("this is the older, incompatible RecordIO layout; convert it first")
        if compressor > 2:
            raise damaged(
                f"unknown compressor {compressor}: damage, or the older, incompatible layout"
            )
        raise damaged(f"the file ends within a chunk: it needs {size} bytes and has {room}")
    return Header(number, offset, crc, Compressor(compressor), size, records)


def decode(header: Header, payload: bytes, uri: str) -> list[bytes]:
    """The records of a chunk, its CRC checked.

    Raises:
        DamagedFile: CRC, compression or lengths are wrong.
    """

    def damaged(reason: str) -> DamagedFile:
        return DamagedFile(uri, header.number, header.offset, reason)

    if len(payload) != header.size:
        raise damaged(f"the file ends within a chunk, after {len(payload)} of {header.size} bytes")
    if zlib.crc32(payload) != header.crc:
        raise damaged("the CRC of the chunk does not fit its bytes")
    plain = _decompress(header, payload, damaged)
    records: list[bytes] = []
    at, end = 0, len(plain)
    unpack = LENGTH.unpack_from
    for _ in range(header.records):
        if at + 4 > end:
            raise damaged(f"the chunk holds {len(records)} records, not {header.records}")
        (length,) = unpack(plain, at)
        start = at + 4
        at = start + length
        if at > end:
            raise damaged(f"record {len(records)} of the chunk is longer than the chunk")
        records.append(plain[start:at])
    if at != end:
        raise damaged(f"{end - at} bytes are left over after {header.records} records")
    return records


def _decompress(header: Header, payload: bytes, damaged: object) -> bytes:
    assert callable(damaged)
    limit = max(1 << 16, header.size * _MAX_RATIO)
    try:
        match header.compressor:
            case Compressor.NONE:
                return payload
            case Compressor.SNAPPY:
                if not payload:
                    return b""
                if not payload.startswith(_SNAPPY_START):
                    raise damaged("the payload is no snappy stream")
                return bytes(cramjam.snappy.decompress(payload))
            case Compressor.GZIP:
                inflate = zlib.decompressobj(wbits=31)
                plain = inflate.decompress(payload, limit)
                if not inflate.eof or inflate.unused_data:
                    raise damaged("the payload is no whole gzip stream")
                return plain
    except (zlib.error, cramjam.DecompressionError, EOFError) as error:
        raise damaged(f"the payload cannot be decompressed: {error}") from error


def encode(records: Sequence[bytes], compressor: Compressor) -> bytes:
    """A whole chunk of records.

    Raises:
        RecordError: a record, or the chunk, is larger than the format's uint32 can say.
    """
    parts: list[bytes] = []
    for record in records:
        if len(record) > MAX_RECORD_BYTES:
            raise RecordError(f"a record of {len(record)} bytes is over the format's 4 GiB")
        parts.append(LENGTH.pack(len(record)))
        parts.append(record)
    plain = b"".join(parts)
    match compressor:
        case Compressor.NONE:
            payload = plain
        case Compressor.SNAPPY:
            payload = bytes(cramjam.snappy.compress(plain))
        case Compressor.GZIP:
            payload = gzip.compress(plain, compresslevel=6, mtime=0)
    if len(payload) >= 2**32:
        raise RecordError(f"a chunk of {len(payload)} bytes is over the format's 4 GiB")
    header = HEADER.pack(MAGIC, zlib.crc32(payload), compressor, len(payload), len(records))
    return header + payload
