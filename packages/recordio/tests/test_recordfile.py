"""RecordIO files byte by byte: compatibility, damage, hostile files, and what reading touches."""

from __future__ import annotations

import errno
import gzip
import io
import pickle
import random
import struct
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest

import recordio
from recordio.formats import chunks, recordfile, writer
from recordio.formats.crc32c import masked_crc
from recordio.storage import files, pins

THREE = b"\x03\x00\x00\x00abc" + b"\x00\x00\x00\x00" + b"\x01\x00\x00\x00z"
"""Payload of the records abc, an empty one, and z."""


def chunk(payload: bytes, compressor: int, records: int, **wrong: int) -> bytes:
    """A chunk as the format describes it; ``wrong`` replaces fields of the header."""
    field = {
        "magic": 0x01020304,
        "crc": zlib.crc32(payload),
        "compressor": compressor,
        "size": len(payload),
        "records": records,
        **wrong,
    }
    return struct.pack("<5I", *field.values()) + payload


def read(path: Path) -> list[bytes]:
    return list(recordio.open_source(str(path)).read(0, 1 << 40))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.recordio"


@pytest.mark.parametrize(
    ("compressor", "payload"),
    [
        (0, THREE),
        (1, bytes(cramjam.snappy.compress(THREE))),
        (2, gzip.compress(THREE, mtime=0)),
        (2, gzip.compress(THREE[:5], mtime=0) + gzip.compress(THREE[5:], mtime=0)),
    ],
    ids=["none", "snappy", "gzip", "gzip of two members"],
)
def test_chunks_as_the_format_describes_them(path: Path, compressor: int, payload: bytes) -> None:
    path.write_bytes(chunk(payload, compressor, 3))
    assert read(path) == [b"abc", b"", b"z"]


def test_a_snappy_stream_written_by_hand(path: Path) -> None:
    # Stream identifier; a frame of plain bytes with its masked CRC-32C; padding to be skipped.
    crc = masked_crc(THREE)
    frame = b"\x01" + (len(THREE) + 4).to_bytes(3, "little") + struct.pack("<I", crc) + THREE
    path.write_bytes(chunk(b"\xff\x06\x00\x00sNaPpY" + frame + b"\xfe\x02\x00\x00..", 1, 3))
    assert read(path) == [b"abc", b"", b"z"]


def test_what_the_writer_writes(path: Path) -> None:
    with recordio.Writer(str(path), compressor="none") as writer:
        for record in (b"abc", b"", b"z"):
            writer.write(record)
    assert path.read_bytes() == chunk(THREE, 0, 3)


def test_chunks_of_several_compressors_and_of_no_record(path: Path) -> None:
    path.write_bytes(
        chunk(b"", 0, 0) + chunk(THREE, 0, 3) + chunk(b"", 1, 0) + chunk(gzip.compress(THREE), 2, 3)
    )
    source = recordio.open_source(str(path))
    assert source.index().first_records == (0, 0, 3, 3)
    assert read(path) == [b"abc", b"", b"z"] * 2
    assert list(source.read(3, 4)) == [b"abc"]


def test_the_older_layout_is_told_apart(path: Path) -> None:
    block = bytes(cramjam.snappy.compress_raw(THREE))
    path.write_bytes(struct.pack("<5I", 0x01020304, 3, 0xDEADBEEF, 2, len(block)) + block)
    with pytest.raises(recordio.DamagedFile, match="older, incompatible RecordIO layout"):
        read(path)


SNAPPY = bytes(cramjam.snappy.compress(THREE * 100))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b"\x04\x03\x02\x01\0", "ends within a header, after 5 of 20"),
        (chunk(THREE, 0, 3, magic=7), "not a RecordIO chunk (magic 0x00000007)"),
        (chunk(THREE, 0, 3, crc=7), "CRC"),
        (chunk(THREE, 9, 3), "unknown compressor 9"),
        (chunk(THREE, 0, 3, size=1_000), "16 of 1000 bytes"),
        (chunk(THREE, 0, 3)[:-1], "15 of 16 bytes"),
        (chunk(THREE, 0, 2), "5 bytes are left over after 2 records"),
        (chunk(bytes(4), 0, 0), "4 bytes are left over after 0 records"),
        (chunk(gzip.compress(THREE, mtime=0), 2, 0), "16 bytes are left over after 0 records"),
        (chunk(b"", 0, 0, crc=7), "CRC"),
        (chunk(THREE, 0, 4), "longer than its chunk"),
        (chunk(THREE, 0, 5), "a chunk of 16 bytes cannot hold 5 records"),
        (chunk(b"\xff\xff\xff\xff" + THREE, 0, 1), "longer than its chunk"),
        (chunk(b"\x05\x00\x00\x00abcd", 0, 1), "longer than its chunk"),
        (chunk(THREE, 1, 3), "not a framed snappy stream"),
        (chunk(SNAPPY[:-1], 1, 300), "snappy stream is truncated"),
        (chunk(SNAPPY[:-1] + b"?", 1, 300), "cannot be decompressed"),
        (chunk(SNAPPY[:10] + b"\x02\x04\x00\x00....", 1, 3), "unknown kind 2"),
        (chunk(THREE, 2, 3), "cannot be decompressed"),
        (chunk(gzip.compress(THREE, mtime=0)[:-1], 2, 3), "gzip stream is truncated"),
        (chunk(gzip.compress(THREE, mtime=0) + b"more", 2, 3), "cannot be decompressed"),
    ],
)
def test_damage_names_file_chunk_and_offset(path: Path, second: bytes, reason: str) -> None:
    first = chunk(THREE, 0, 3)
    path.write_bytes(first + second)
    source = recordio.open_source(str(path))
    for hint in ((0, 0), (3, len(first))):
        reader = source.read(hint[0], 99, hint=hint)
        if hint == (0, 0):
            assert [next(reader) for _ in range(3)] == [b"abc", b"", b"z"]
        with pytest.raises(recordio.DamagedFile) as caught:
            list(reader)
        error = caught.value
        assert (error.uri, error.chunk, error.offset) == (str(path), 1, len(first))
        assert reason in error.reason
        assert str(error).startswith(f"{path}: chunk 1, offset 36: ")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.chunk, again.offset) == (str(error), 1, 36)


def test_bytes_left_from_a_larger_chunk_are_no_records(path: Path) -> None:
    # The buffer that is kept holds the first chunk's bytes when the second is read.
    large = b"".join(struct.pack("<I", 100) + b"L" * 100 for _ in range(100))
    path.write_bytes(chunk(large, 0, 100) + chunk(b"\x20\x00\x00\x00abcd", 0, 1))
    with pytest.raises(recordio.DamagedFile, match="longer than its chunk of 8"):
        read(path)


def _bomb(form: str) -> bytes:
    zeros = bytes(64 << 20)
    if form == "gzip":
        packed = gzip.compress(zeros, 9)
        return chunk(packed * 33, 2, 1)
    frame = bytes(cramjam.snappy.compress(zeros))[10:]
    return chunk(b"\xff\x06\x00\x00sNaPpY" + frame * 17, 1, 1)


@pytest.mark.parametrize("form", ["gzip", "snappy"])
def test_a_bomb_is_not_expanded_without_end(
    path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 32 << 20
    for module in ("chunks", "payload"):
        monkeypatch.setattr(f"recordio.formats.{module}.MAX_EXPANDED_BYTES", limit)
    path.write_bytes(_bomb(form))
    tracemalloc.start()
    with pytest.raises(recordio.DamagedFile, match="expands beyond"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * limit + 2 * path.stat().st_size


def test_a_bomb_that_claims_few_records_costs_little(path: Path) -> None:
    # Only what holds the wanted record is expanded.
    path.write_bytes(_bomb("gzip"))
    assert list(recordio.open_source(str(path)).read(0, 0)) == []
    content = chunk(gzip.compress(struct.pack("<I", 3) + b"abc" + bytes(300 << 20), 9), 2, 7)
    path.write_bytes(content)
    tracemalloc.start()
    assert list(recordio.open_source(str(path)).read(0, 1)) == [b"abc"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("compressor", ["snappy", "gzip"])
def test_a_huge_chunk_is_expanded_only_as_far_as_needed(
    path: Path, compressor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    records = [chance.randbytes(1_000) for _ in range(20_000)]
    with recordio.Writer(str(path), compressor=compressor, chunk_bytes=1 << 30) as writer:
        for record in records:
            writer.write(record)
    source = recordio.open_source(str(path))
    assert len(source.index().offsets) == 1
    filled: list[int] = []
    whole = recordfile.PayloadReader._fill
    monkeypatch.setattr(
        recordfile.PayloadReader,
        "_fill",
        lambda self, plain: filled.append(len(plain)) or whole(self, plain),
    )
    assert list(source.read(400, 500)) == records[400:500]
    assert filled[0] < 1 << 20
    assert list(source.read(19_990, 20_000)) == records[-10:]


class _Counted(io.BufferedReader):
    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(size)
        _Counted.taken += len(content)
        return content

    def readinto(self, buffer: Any, /) -> int:
        size = super().readinto(buffer)
        _Counted.taken += size
        return size


def test_reading_touches_only_the_chunks_it_needs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recordio.Writer(str(path), compressor="none", chunk_bytes=10_000) as writer:
        for i in range(10_000):
            writer.write(b"%096d" % i)
    counted = SimpleNamespace(FileIO=io.FileIO, BufferedReader=_Counted)
    monkeypatch.setattr(files, "io", counted)
    source = recordio.open_source(str(path))
    headers = len(source.index().offsets) * chunks.HEADER.size
    assert _Counted.taken == headers
    _Counted.taken = 0
    assert len(list(source.read(5_000, 5_100))) == 100
    assert _Counted.taken <= 2 * (10_000 + chunks.HEADER.size)


def test_concatenation(path: Path, tmp_path: Path) -> None:
    parts = []
    for number, compressor in enumerate(("none", "snappy", "gzip")):
        part = str(tmp_path / f"{number}.rio")
        with recordio.Writer(part, compressor=compressor, chunk_records=2) as writer:
            for i in range(3):
                writer.write(b"%d.%d" % (number, i))
        parts.append(part)
    assert recordio.concatenate(parts, str(path)) == 9
    assert read(path) == [b"%d.%d" % (n, i) for n in range(3) for i in range(3)]
    assert recordio.concatenate([], str(path)) == 0
    assert read(path) == []


def test_concatenation_of_a_damaged_part_leaves_nothing(path: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.rio", tmp_path / "bad.rio"
    good.write_bytes(chunk(THREE, 0, 3))
    bad.write_bytes(chunk(THREE, 0, 3, crc=1))
    with pytest.raises(recordio.DamagedFile, match=r"bad\.rio: chunk 0, offset 0"):
        recordio.concatenate([str(good), str(bad)], str(path))
    assert sorted(tmp_path.iterdir()) == [bad, good]


def test_a_full_disk_of_the_joined_file_is_not_taken_for_an_unreadable_part(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "part.rio"
    part.write_bytes(chunk(THREE, 0, 3))

    class Full(io.BytesIO):
        def write(self, content: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    class AtomicFile(writer.AtomicFile):
        def __init__(self, place: str) -> None:
            super().__init__(place)
            self.file = Full()

    monkeypatch.setattr(writer, "AtomicFile", AtomicFile)
    with pytest.raises(OSError, match="No space left") as caught:
        recordio.concatenate([str(part)], str(path))
    assert caught.value.errno == errno.ENOSPC


def test_what_the_disk_does_not_give_is_an_unreadable_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(chunk(THREE, 0, 3))

    class Broken(pins.PinnedFile):
        def readinto(self, buffer: Any, /) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "PinnedFile", Broken)
    with pytest.raises(recordio.UnreadableFile, match=r"a\.recordio: Input/output error"):
        read(path)
