"""What every reader promises, whatever the format."""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from conftest import Kind

import recordio

NUMBER = 5_000


@pytest.fixture
def records(kind: Kind) -> list[bytes]:
    return kind.rows(NUMBER)


@pytest.fixture
def path(kind: Kind, records: list[bytes], tmp_path: Path) -> str:
    place = str(tmp_path / kind.name)
    kind.write(place, records)
    return place


def test_the_suffix_selects_the_format(kind: Kind, path: str) -> None:
    source = recordio.open_source(path)
    assert (source.uri, source.format) == (path, kind.format)
    assert source.columns == (("id", "text") if kind.format == "csv" else None)


def test_without_a_suffix_the_content_selects_the_format(
    kind: Kind, path: str, tmp_path: Path
) -> None:
    bare = tmp_path / "part-00000"
    os.rename(path, bare)
    assert recordio.open_source(str(bare)).format == kind.format


def test_every_record_comes_back_in_order(path: str, records: list[bytes]) -> None:
    source = recordio.open_source(path)
    assert source.count() == NUMBER
    assert list(source.read(0, NUMBER)) == records
    assert [record for block in source.read_blocks(0, NUMBER) for record in block] == records


def test_blocks_are_never_empty(path: str) -> None:
    assert all(recordio.open_source(path).read_blocks(10, 4_000))


def test_ranges(path: str, records: list[bytes]) -> None:
    source = recordio.open_source(path)
    chance = random.Random(1)
    edges = [0, 1, 1023, 1024, 1025, 2048, NUMBER - 1, NUMBER]
    pairs = [(a, b) for a in edges for b in edges if a <= b]
    pairs += [sorted(chance.sample(range(NUMBER), 2)) for _ in range(30)]
    for start, stop in pairs:
        assert list(source.read(start, stop)) == records[start:stop]


def test_a_range_ends_with_the_file_unless_it_is_exact(path: str, records: list[bytes]) -> None:
    source = recordio.open_source(path)
    assert list(source.read(NUMBER - 2, NUMBER + 10**9)) == records[-2:]
    assert list(source.read(NUMBER, NUMBER + 5)) == []
    exact = source.read_blocks(NUMBER - 2, NUMBER + 1, exact=True)
    assert next(exact) == records[-2:]
    with pytest.raises(recordio.RecordError, match="ends after 5000"):
        next(exact)


def test_ranges_that_make_no_sense(path: str) -> None:
    source = recordio.open_source(path)
    assert list(source.read(7, 7)) == list(source.read(7, 3)) == []
    with pytest.raises(recordio.RecordError, match="record -1"):
        source.read(-1, 3)
    with pytest.raises(recordio.RecordError, match="not at or before"):
        source.read_blocks(5, 9, hint=(6, 0))


def test_the_index_covers_the_file(kind: Kind, path: str) -> None:
    index = recordio.open_source(path).index()
    assert index.records == NUMBER
    assert index.first_records[0] == 0
    assert list(index.first_records) == sorted(set(index.first_records))
    assert list(index.offsets) == sorted(set(index.offsets))
    assert len(index.offsets) == len(index.first_records) >= (1 if "one" in kind.name else 4)
    if not kind.name.endswith(".gz"):
        assert index.nbytes == os.path.getsize(path)


def test_a_hint_spares_another_process_the_index(
    path: str, records: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = pickle.loads(pickle.dumps(recordio.open_source(path).index()))
    elsewhere = recordio.open_source(path)
    monkeypatch.setattr(type(elsewhere), "_scan", lambda self: pytest.fail("it was indexed"))
    for start, stop in ((0, 5), (1, 2), (1024, 1030), (3_333, 4_444), (NUMBER - 1, NUMBER)):
        found = elsewhere.read(start, stop, hint=index.block(start))
        assert list(found) == records[start:stop]


def test_several_readings_at_once_do_not_disturb_each_other(
    path: str, records: list[bytes]
) -> None:
    source = recordio.open_source(path)
    pairs = zip(source.read(0, NUMBER), source.read(0, NUMBER), strict=True)
    assert [a for a, b in pairs if a == b] == records


def test_an_empty_file_holds_no_record(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / kind.name
    path.touch()
    source = recordio.open_source(str(path))
    assert (source.count(), list(source.read(0, 9)), source.index().offsets) == (0, [], ())


def test_a_file_without_records_holds_none(kind: Kind, tmp_path: Path) -> None:
    path = str(tmp_path / kind.name)
    kind.write(path, [])
    assert recordio.open_source(path).count() == 0
    assert list(recordio.open_source(path).read(0, 1)) == []


def test_a_file_in_a_store(kind: Kind, path: str, records: list[bytes], store: str) -> None:
    uri = f"{store}/{kind.name}"
    with fsspec.open(uri, "wb") as there, open(path, "rb") as here:
        there.write(here.read())
    source = recordio.open_source(uri)
    index = recordio.open_source(path).index()
    if kind.format == "parquet":  # an object has a version: no pages are read for a checksum
        index = replace(index, checksum=source.index().checksum)
    assert source.index() == index
    assert list(source.read(2_000, 3_000)) == records[2_000:3_000]
    assert list(source.read(0, NUMBER)) == records


def until_damage(path: str) -> tuple[list[bytes], recordio.DamagedFile | None]:
    """All records up to the first error."""
    found: list[bytes] = []
    try:
        for record in recordio.open_source(path).read(0, NUMBER, hint=(0, 0)):
            found.append(record)
    except recordio.DamagedFile as error:
        return found, error
    return found, None


def test_a_cut_file_gives_true_records_and_then_an_error(
    kind: Kind, path: str, records: list[bytes]
) -> None:
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) * 2 // 3])
    found, error = until_damage(path)
    if kind.name == "plain.csv":
        found.pop()  # only a format without checksums and lengths can be cut unnoticed
    else:
        assert error is not None
        assert f"{path}: " in str(error)
        assert "offset" in str(error)
    assert found == records[: len(found)]
    # The last bytes of a Parquet file say where all others are.
    assert found or "one-chunk" in kind.name or kind.format == "parquet"


def test_a_flipped_bit_is_found(kind: Kind, path: str, records: list[bytes]) -> None:
    if not kind.checked:
        pytest.skip("CSV has no checksums")
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 4
    Path(path).write_bytes(content)
    found, error = until_damage(path)
    assert found == records[: len(found)]
    assert error is not None
    assert error.uri == path
    assert error.reason


@pytest.mark.parametrize("what", ["missing", "directory", "pipe"])
def test_what_cannot_be_opened(kind: Kind, what: str, tmp_path: Path) -> None:
    path = tmp_path / kind.name
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises(recordio.UnreadableFile, match=kind.name):
        recordio.open_source(str(path)).count()
