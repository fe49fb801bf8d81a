"""Writers: a file appears whole or not at all."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import recordio
from recordio.storage import files

Make = Callable[..., Any]


@pytest.fixture(params=["recordio", "tfrecord", "tfrecord.gz"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"a.{request.param}"


@pytest.fixture
def make(place: Path) -> Make:
    return recordio.Writer if place.suffix == ".recordio" else recordio.TFRecordWriter


def read(place: Path | str) -> list[bytes]:
    return list(recordio.open_source(str(place)).read(0, 1 << 40))


def test_the_file_appears_when_it_is_whole(place: Path, make: Make) -> None:
    with make(str(place)) as writer:
        writer.write(b"one")
        assert not place.exists()
        assert writer.records == 1
    assert read(place) == [b"one"]
    assert list(place.parent.iterdir()) == [place]


def test_an_exception_leaves_nothing(place: Path, make: Make) -> None:
    place.write_bytes(b"as it was")

    def interrupt() -> None:
        with make(str(place)) as writer:
            writer.write(b"one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert place.read_bytes() == b"as it was"
    assert list(place.parent.iterdir()) == [place]


def test_use_after_close_is_an_error(place: Path, make: Make) -> None:
    writer = make(str(place))
    writer.write(b"one")
    writer.close()
    writer.close()
    writer.discard()
    with pytest.raises(recordio.RecordError, match="the writer is closed"):
        writer.write(b"two")
    assert read(place) == [b"one"]


def test_a_dropped_writer_leaves_nothing(place: Path, make: Make) -> None:

    def drop() -> None:
        make(str(place)).write(b"one")
        gc.collect()

    with pytest.warns(ResourceWarning, match="never closed"):
        drop()
    assert list(place.parent.iterdir()) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(place: Path, make: Make) -> None:
    writer = make(str(place), **({"chunk_records": 1} if make is recordio.Writer else {}))
    real = writer._file.file if make is recordio.Writer else writer._atomic.file

    class Full:
        def write(self, content: bytes) -> int:
            real.write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    if make is recordio.Writer:
        writer._file.file = Full()
    else:
        writer._file = Full()
    with pytest.raises(OSError, match="No space left"):
        writer.write(b"x" * 100)
    # A caller that ignores the error must not get half a file.
    with pytest.raises(recordio.RecordError, match="closed"):
        writer.write(b"y")
    writer.close()
    assert list(place.parent.iterdir()) == []


def test_a_failing_rename_leaves_nothing(
    place: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(PermissionError), make(str(place)) as writer:
        writer.write(b"one")
    assert list(place.parent.iterdir()) == []


def test_writers_of_one_name_do_not_disturb_each_other(place: Path, make: Make) -> None:
    def write(number: int) -> None:
        with make(str(place)) as writer:
            together.wait()
            for _ in range(500):
                writer.write(b"%d" % number)

    # All have begun before the first ends, or they would not be in each other's way.
    together = threading.Barrier(8, timeout=200)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8), timeout=200))
    found = read(place)
    assert len(found) == 500
    assert len(set(found)) == 1
    assert list(place.parent.iterdir()) == [place]


def test_a_missing_directory_is_an_error(tmp_path: Path, make: Make, place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make(str(tmp_path / "none" / place.name))


def test_a_file_in_a_store(make: Make, place: Path, store: str) -> None:
    uri = f"{store}/{place.name}"
    system, path = fsspec.core.url_to_fs(store)
    system.makedirs(path)
    with make(uri) as writer:
        writer.write(b"one")
        assert not system.exists(f"{path}/{place.name}")
    assert read(uri) == [b"one"]
    writer = make(f"{store}/b")
    writer.write(b"one")
    writer.discard()
    assert system.ls(path, detail=False) == [f"{path}/{place.name}"]


@pytest.mark.parametrize("name", ["a[1].recordio", "a*.recordio", "a?[.recordio"])
def test_a_name_in_a_store_may_look_like_a_pattern(store: str, name: str) -> None:
    with recordio.Writer(f"{store}/{name}") as writer:
        writer.write(b"one")
    assert read(f"{store}/{name}") == [b"one"]
    system, path = fsspec.core.url_to_fs(store)
    assert system.find(path) == [f"{path}/{name}"]


def test_chunks_close_by_bytes_and_by_records(tmp_path: Path) -> None:
    def first(**options: int) -> tuple[int, ...]:
        path = str(tmp_path / "x.rio")
        with recordio.Writer(path, compressor="none", **options) as writer:
            for _ in range(10):
                writer.write(b"x" * 96)
        return recordio.open_source(path).index().first_records

    assert first() == (0,)
    assert first(chunk_bytes=300) == (0, 3, 6, 9)
    assert first(chunk_bytes=299) == (0, 2, 4, 6, 8)
    assert first(chunk_bytes=1) == tuple(range(10))
    assert first(chunk_records=4) == (0, 4, 8)
    for wrong in ({"chunk_bytes": 0}, {"chunk_records": 0}):
        with pytest.raises(recordio.RecordError, match="at least 1"):
            first(**wrong)


def test_a_long_record_gets_a_chunk_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "x.rio")
    records = [b"a", b"L" * 3_000_000, b"b"]
    with recordio.Writer(path) as writer:
        for record in records:
            writer.write(record)
    assert recordio.open_source(path).index().first_records == (0, 1, 2)
    assert read(path) == records


def test_a_record_over_the_format_is_refused_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "x.rio")
    with recordio.Writer(path) as writer:
        writer.write(b"a")
        # Zeros that are never read take no memory.
        with pytest.raises(recordio.RecordError, match="4294967292 bytes exceeds the format"):
            writer.write(bytes(2**32 - 4))
        writer.write(b"b")
    assert read(path) == [b"a", b"b"]


def test_very_long_chunks_are_stored_plain_so_that_every_reader_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordio.formats.chunks._MAX_COMPRESSED_BYTES", 1_000)
    path = str(tmp_path / "x.rio")
    with recordio.Writer(path, compressor="gzip", chunk_records=1) as writer:
        writer.write(b"a" * 900)
        writer.write(b"b" * 1_100)
    source = recordio.open_source(path)
    assert isinstance(source, recordio.formats.recordfile.RecordIOSource)
    assert [header.compressor.name for header in source.headers()] == ["GZIP", "NONE"]
    assert read(path) == [b"a" * 900, b"b" * 1_100]


def test_buffers_are_taken_as_they_are_now(tmp_path: Path) -> None:
    path = str(tmp_path / "x.rio")
    buffer = bytearray(b"one")
    with recordio.Writer(path) as writer:
        writer.write(buffer)
        buffer[:] = b"two"
        writer.write(memoryview(buffer))
    assert read(path) == [b"one", b"two"]


def test_an_unknown_compressor(tmp_path: Path) -> None:
    with pytest.raises(recordio.RecordError, match="use none, snappy or gzip"):
        recordio.Writer(str(tmp_path / "x"), compressor="zstd")
    assert list(tmp_path.iterdir()) == []
