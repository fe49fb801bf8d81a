"""Whatever happens to a file: true records, then perhaps an error; never others, never a crash."""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from pathlib import Path
from typing import Literal

import pytest
from conftest import KINDS, Kind, rows
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import recordio

records_of = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(0, 5_000).map(lambda n: b"\0" * n),
        st.binary(min_size=1, max_size=8).map(lambda b: b * 700),
    ),
    max_size=30,
)
BINARY = [kind for kind in KINDS if kind.checked and kind.rows is rows]
relaxed = settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def until_damage(path: Path, format: str) -> tuple[list[bytes], bool]:
    """The records up to the first damage, and whether there was any."""
    found: list[bytes] = []
    error = None
    try:
        source = recordio.open_source(str(path), format=format)
        for block in source.read_blocks(0, 1 << 40, hint=(0, 0)):
            found += block
    except recordio.DamagedFile as damage:
        error = damage
    assert error is None or (error.reason and str(path) in str(error))
    return found, error is not None


@pytest.mark.parametrize("kind", BINARY, ids=str)
class TestBinary:
    @relaxed
    @given(data=st.data(), records=records_of)
    def test_round_trip_and_ranges(
        self, kind: Kind, tmp_path: Path, data: st.DataObject, records: list[bytes]
    ) -> None:
        path = tmp_path / kind.name
        kind.write(str(path), records)
        source = recordio.open_source(str(path))
        assert source.count() == len(records)
        start = data.draw(st.integers(0, len(records)))
        stop = data.draw(st.integers(0, len(records) + 3))
        assert list(source.read(start, stop)) == records[start:stop]
        if start < len(records):
            hint = source.index().block(start)
            again = recordio.open_source(str(path)).read(start, stop, hint=hint)
            assert list(again) == records[start:stop]

    @relaxed
    @given(data=st.data(), records=records_of)
    def test_a_cut(
        self, kind: Kind, tmp_path: Path, data: st.DataObject, records: list[bytes]
    ) -> None:
        path = tmp_path / kind.name
        kind.write(str(path), records)
        whole = path.read_bytes()
        index = recordio.open_source(str(path)).index()
        cut = data.draw(st.integers(0, max(0, len(whole) - 1)))
        path.write_bytes(whole[:cut])
        found, damaged = until_damage(path, kind.format)
        assert found == records[: len(found)]
        # Between two chunks or records the formats themselves cannot tell a cut from an end.
        seam = cut in (0, *index.offsets) or kind.format == "tfrecord"
        assert damaged or seam or cut == len(whole)
        if len(found) < len(records) and not damaged:
            source = recordio.open_source(str(path), format=kind.format)
            with pytest.raises(recordio.RecordError):
                list(source.read_blocks(0, len(records), hint=(0, 0), exact=True))

    @relaxed
    @given(data=st.data(), records=records_of)
    def test_flipped_bits(
        self, kind: Kind, tmp_path: Path, data: st.DataObject, records: list[bytes]
    ) -> None:
        path = tmp_path / kind.name
        kind.write(str(path), records)
        content = bytearray(path.read_bytes())
        if not content:
            return
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(
                st.integers(0, 7)
            )
        path.write_bytes(content)
        found, damaged = until_damage(path, kind.format)
        assert found == records[: len(found)]
        assert damaged or found == records

    @relaxed
    @given(data=st.data(), records=records_of, junk=st.binary(min_size=1, max_size=60))
    def test_bytes_put_in_or_over(
        self, kind: Kind, tmp_path: Path, data: st.DataObject, records: list[bytes], junk: bytes
    ) -> None:
        path = tmp_path / kind.name
        kind.write(str(path), records)
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content)))
        over = data.draw(st.integers(0, 40))
        path.write_bytes(content[:at] + junk + content[at + over :])
        found, damaged = until_damage(path, kind.format)
        assert found == records[: len(found)]
        assert damaged or found == records


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
@pytest.mark.parametrize("per_chunk", [1, 3])
def test_every_flipped_bit_of_a_file(
    compressor: Literal["none", "snappy", "gzip"], per_chunk: int, tmp_path: Path
) -> None:
    """Each bit of every header counts: how many records a chunk has is under no checksum."""
    records = [b"", b"\x01\x00\x00\x00" * 2, b"one", bytes(9)]
    path = tmp_path / "a.recordio"
    with recordio.Writer(str(path), compressor=compressor, chunk_records=per_chunk) as writer:
        for record in records:
            writer.write(record)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        found, damaged = until_damage(path, "recordio")
        assert found == records[: len(found)], bit
        assert damaged or found == records, bit


@pytest.mark.parametrize("name", ["a.recordio", "a.tfrecord", "a.tfrecord.gz", "a.csv", "a.csv.gz"])
@relaxed
@given(content=st.binary(max_size=300), packed=st.booleans())
def test_any_bytes_at_all(name: str, tmp_path: Path, content: bytes, packed: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed and name.endswith(".gz") else content)
    format = recordio.open_source(str(path)).format
    until_damage(path, format)
    with contextlib.suppress(recordio.DamagedFile):
        assert recordio.open_source(str(path)).count() >= 0


@relaxed
@given(
    fields=st.tuples(
        *[st.integers(0, 2**32 - 1)] * 2, st.integers(0, 3), *[st.integers(0, 90)] * 2
    ),
    payload=st.binary(max_size=80),
    right=st.booleans(),
)
@example(fields=(0, 0, 2, 30, 1), payload=b"\x1f\x8b\x08" + bytes(27), right=True)
def test_any_chunk_at_all(
    tmp_path: Path, fields: tuple[int, ...], payload: bytes, right: bool
) -> None:
    """Headers that are right up to the CRC, so that the payload is what is tried."""
    _, crc, compressor, size, records = fields
    if right:
        crc, size = zlib.crc32(payload), len(payload)
    path = tmp_path / "a.recordio"
    path.write_bytes(struct.pack("<5I", 0x01020304, crc, compressor, size, records) + payload)
    found, damaged = until_damage(path, "recordio")
    assert damaged or len(found) == records


@relaxed
@given(content=st.binary(max_size=200))
def test_any_bytes_sniffed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "without-ending"
    path.write_bytes(content)
    with contextlib.suppress(recordio.RecordError):
        until_damage(path, recordio.open_source(str(path)).format)
