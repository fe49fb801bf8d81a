"""Objects of stores are read ahead, in parallel and again, and never as a mixture of versions."""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest
from conftest import KINDS, Kind, rows
from fsspec.implementations.memory import MemoryFileSystem

import recordio
from recordio.formats.chunks import HEADER, LENGTH, MAGIC
from recordio.storage import stored_file
from recordio.storage.files import reading
from recordio.storage.stored_file import DEPTH, MAX_DEPTH, MAX_PART_BYTES, MAX_PROBE_BYTES

NUMBER = 40_000


class Unsteady(MemoryFileSystem):
    """A store in memory, with versions, that does what a test wants before it answers."""

    protocol = "unsteady"
    store: dict[str, Any] = {}  # noqa: RUF012  (as in the class above it)
    pseudo_dirs: list[str] = [""]  # noqa: RUF012  (the same)
    before: Callable[[int, int], None]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("unsteady://", "memory://")))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        info = super().info(path, **kwargs)
        return {**info, "ETag": str(hash(self.store[path].getvalue()))}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        type(self).before(start, end)
        return bytes(super().cat_file(path, start=start, end=end, **kwargs))


fsspec.register_implementation("unsteady", Unsteady, clobber=True)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stored_file, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(stored_file, "_MAX_PAUSE_S", 0.001)
    Unsteady.before = staticmethod(lambda start, end: None)
    yield
    Unsteady.store.clear()


def put(name: str, records: list[bytes]) -> str:
    uri = f"unsteady://{name}.recordio"
    with recordio.Writer(uri, chunk_bytes=20_000, compressor="none") as writer:
        for record in records:
            writer.write(record)
    return uri


def failing(error: Exception, times: int) -> Callable[[int, int], None]:
    left = iter(range(times))

    def before(start: int, end: int) -> None:
        if next(left, None) is not None:
            raise error

    return before


class ServerError(Exception):
    code = "503"


@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset"), TimeoutError(), ServerError(), OSError(16, "SlowDown")]
)
def test_a_failing_store_is_asked_again(error: Exception) -> None:
    records = rows(NUMBER)
    uri = put("again", records)
    Unsteady.before = staticmethod(failing(error, 30))
    assert list(recordio.open_source(uri).read(0, NUMBER)) == records


def test_a_store_that_keeps_failing_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_file, "RETRY_S", 0.02)
    uri = put("never", rows(10))
    Unsteady.before = staticmethod(failing(ConnectionResetError("reset by peer"), 10**9))
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri}.*reset by peer"):
        recordio.open_source(uri).count()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError("no"), "the store denies access: no"),
        (FileNotFoundError("x"), "there is no such object or bucket"),
        (ValueError("odd"), "denied.recordio: odd$"),
    ],
)
def test_a_permanent_error_is_not_retried(error: Exception, told: str) -> None:
    uri = put("denied", rows(10))
    Unsteady.before = staticmethod(failing(error, 1))
    with pytest.raises(recordio.UnreadableFile, match=told):
        recordio.open_source(uri).count()


def test_ranges_are_fetched_at_the_same_time_and_no_more_than_that_many() -> None:
    lock, together, most, large = threading.Lock(), 0, 0, 0
    meet = threading.Event()

    def before(start: int, end: int) -> None:
        nonlocal together, most, large
        with lock:
            together += 1
            most, large = max(most, together), max(large, end - start)
        if start > 100 << 20:
            if together == MAX_DEPTH:
                meet.set()
            meet.wait(300)  # hangs, and fails, unless as many as may be are on their way
        elif start > 0:
            time.sleep(0.05)  # the reader waits
        with lock:
            together -= 1

    fsspec.filesystem("unsteady").pipe_file("/large", content := bytes(200 << 20))
    Unsteady.before = staticmethod(before)
    with reading("unsteady://large") as (file, size):
        assert size == len(content)
        assert file.read(10) == content[:10]
        assert most == 1, "a look at one place costs one request"
        while file.read(1 << 20):
            pass
    assert most == MAX_DEPTH
    assert large <= MAX_PART_BYTES


@pytest.mark.parametrize("is_known", [True, False])
def test_only_a_reader_that_waits_has_more_than_a_few_parts_requested(is_known: bool) -> None:
    """The bytes ahead are those requested beyond the reader's position, fetched or not."""
    size, last = 400 << 20, 0
    lock = threading.Lock()
    waits = threading.Event()

    def before(start: int, end: int) -> None:
        nonlocal last
        with lock:
            last = max(last, end)
        if not waits.is_set():
            return
        time.sleep(0.02)

    def read_on(file: Any, nbytes: int) -> int:
        """Read on, and return the largest number of bytes that were ahead meanwhile."""
        most = 0
        for _ in range(nbytes >> 20):
            file.read(1 << 20)
            most = max(most, last - file.tell())
            if not waits.is_set():
                for part in file._parts:
                    part.content.result(300)
        return most

    fsspec.filesystem("unsteady").pipe_file("/large", bytes(size))
    Unsteady.before = staticmethod(before)
    with reading("unsteady://large", wanted=(0, size) if is_known else (0, 0)) as (file, _):
        read_on(file, 120 << 20)
        assert read_on(file, 32 << 20) <= DEPTH * MAX_PART_BYTES, (
            "parts are there before it needs them"
        )
        waits.set()
        most = read_on(file, 64 << 20)
        assert DEPTH * MAX_PART_BYTES < most <= MAX_DEPTH * MAX_PART_BYTES
        waits.clear()
        read_on(file, 140 << 20)
        assert file._depth == DEPTH, "it gives up what it does not need"


@pytest.mark.parametrize("nbytes", [0, 3, 2**32 - 5])
def test_a_record_that_is_longer_than_its_chunk_is_found_wherever_its_request_ends(
    nbytes: int,
) -> None:
    """The chunks are read in the place where requests brought them, with what follows them."""
    payload = LENGTH.pack(10) + bytes(10) + LENGTH.pack(nbytes) + bytes(2)
    bad = HEADER.pack(MAGIC, zlib.crc32(payload), 0, len(payload), 2) + payload
    for after in (b"", bytes(40)):
        fsspec.filesystem("unsteady").pipe_file("/bad", bad + after)
        for end in (0, len(bad)):
            with pytest.raises(recordio.DamagedFile, match=r"chunk 0, .*(longer|left over)"):
                list(recordio.open_source("unsteady://bad").read(0, 2, hint=(0, 0), end=end))


def test_a_range_of_known_end_is_fetched_at_once_and_nothing_beyond_it() -> None:
    records = rows(NUMBER)
    uri = put("known", records)
    index = recordio.open_source(uri).index()
    start, stop = NUMBER // 4, NUMBER // 2
    hint, end = index.block(start), index.end(stop)
    assert end - hint[1] > DEPTH << 16, "several parts"
    lock, asked = threading.Lock(), []
    meet = threading.Barrier(DEPTH)

    def before(begin: int, after: int) -> None:
        with lock:
            asked.append((begin, after))
        meet.wait(300)  # hangs, and fails, unless all are on their way

    Unsteady.before = staticmethod(before)
    with reading(uri, ahead=1 << 10, wanted=(hint[1], end)) as (file, _):
        file.seek(hint[1])
        assert len(file.read(end - hint[1])) == end - hint[1]
    assert len(asked) == DEPTH
    Unsteady.before = staticmethod(lambda begin, after: asked.append((begin, after)))
    asked.clear()
    found = recordio.open_source(uri).read(start, stop, hint=hint, end=end)
    assert list(found) == records[start:stop]
    assert (min(asked)[0], max(asked)[1]) == (hint[1], end)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name in ("plain.csv", "plain.tfrecord")], ids=str
)
def test_a_task_reads_its_range_and_looks_at_the_beginning_of_a_file_once(
    kind: Kind, tmp_path: Path
) -> None:
    records = [record * 4 for record in rows(4 * NUMBER) if b"\n" not in record]
    kind.write(str(tmp_path / kind.name), records)
    uri = f"unsteady://{kind.name}"
    fsspec.filesystem("unsteady").pipe_file(f"/{kind.name}", (tmp_path / kind.name).read_bytes())
    master = recordio.open_source(uri)
    assert master.columns is None or master.columns
    index, asked = master.index(), []
    Unsteady.before = staticmethod(lambda begin, after: asked.append((begin, after)))
    source = recordio.open_source(uri, version=master.version)
    for number, share in enumerate((4, 2)):
        start, stop = len(records) // (share + 1), len(records) // share
        hint, end = index.block(start), index.end(stop)
        assert end - hint[1] > DEPTH << 16, "several parts"
        assert index.nbytes - end > 1 << 20, "not the last one"
        asked.clear()
        assert list(source.read(start, stop, hint=hint, end=end)) == records[start:stop]
        looked = [part for part in asked if part[0] < hint[1]]
        assert looked == ([] if number else [(0, MAX_PROBE_BYTES)])
        assert (
            sum(after - begin for begin, after in asked)
            == MAX_PROBE_BYTES * len(looked) + end - hint[1]
        )
        assert len(asked) <= DEPTH + len(looked)


def test_a_gzip_file_is_read_whole_whatever_range_of_it_is_wanted() -> None:
    records = [b"%d,%d" % (i, i * i) for i in range(NUMBER)]
    packed = gzip.compress(b"\n".join([b"n,square", *records]))
    fsspec.filesystem("unsteady").pipe_file("/squares", packed)
    source = recordio.open_source("unsteady://squares", format="csv")
    index = recordio.open_source("unsteady://squares", format="csv").index()
    hint, end = index.block(30_000), index.end(30_010)
    for _ in range(2):
        assert list(source.read(30_000, 30_010, hint=hint, end=end)) == records[30_000:30_010]


def test_an_end_that_is_too_early_changes_no_record() -> None:
    records = rows(NUMBER)
    uri = put("early", records)
    for end in (1, 50_000):
        found = recordio.open_source(uri).read(0, NUMBER, hint=(0, 0), end=end)
        assert list(found) == records


@pytest.mark.parametrize("stop", [1, 19, 20, 21, NUMBER])
def test_the_end_of_a_range_is_that_of_its_last_block(stop: int) -> None:
    uri = put("ends", rows(NUMBER))
    index = recordio.open_source(uri).index()
    first, offset = index.block(stop - 1)
    assert first < stop
    assert index.end(stop) > offset
    assert index.end(stop) in (*index.offsets, index.nbytes)
    assert index.end(stop) == index.nbytes or index.block(stop)[1] <= index.end(stop)


def test_reads_at_any_offset_are_right() -> None:
    content = bytes(i * 7 % 251 for i in range(1 << 20))
    fsspec.filesystem("unsteady").pipe_file("/places", content)
    with reading("unsteady://places", ahead=1000) as (file, _):
        for at, nbytes in ((0, 10), (10, 5000), (5010, 1), (900_000, 300_000), (3, 70_000), (9, 9)):
            file.seek(at)
            assert file.read(nbytes) == content[at : at + nbytes]
            assert file.tell() == min(at + nbytes, len(content))


def test_an_answer_that_is_cut_short_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    records = rows(1000)
    uri = put("short", records)
    whole, calls = Unsteady.cat_file, count()

    def cut(self: Unsteady, path: str, start: Any = None, end: Any = None) -> bytes:
        return whole(self, path, start, end - (next(calls) % 2 == 0))

    monkeypatch.setattr(Unsteady, "cat_file", cut)
    assert list(recordio.open_source(uri).read(0, 1000)) == records


def test_a_source_reads_one_version_only() -> None:
    uri = put("changed", rows(10))
    source = recordio.open_source(uri)
    index = source.index()
    put("changed", [bytes(len(record)) for record in rows(10)])
    for reader in (source, recordio.open_source(uri, version=source.version)):
        with pytest.raises(recordio.UnreadableFile, match=rf"{uri} has changed"):
            list(reader.read(0, 5, hint=index.block(0)))
    assert len(list(recordio.open_source(uri).read(0, 5))) == 5
