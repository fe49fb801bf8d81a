"""Tasks of one file of a store share what they find out about it, and what they keep of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import recordio
from edl_proto.v1 import job_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.core.job import DataCacheSettings
from edl_worker.core.tasks import RecordRange
from edl_worker.tasks import record_reading

LINES = [b"%d,%d" % (number, number**2) for number in range(200_000)]
URI = "counted://bucket/numbers.csv"


class Counted(MemoryFileSystem):
    """A store in memory, with versions, that notes the ranges that it is asked for."""

    protocol = "counted"
    store: dict[str, Any] = {}  # noqa: RUF012  (as in the class above it)
    pseudo_dirs: list[str] = [""]  # noqa: RUF012  (the same)
    asked: list[tuple[int, int]] = []  # noqa: RUF012  (the same)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("counted://", "memory://")))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return {**super().info(path, **kwargs), "ETag": "1"}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        self.asked.append((start, end))
        return bytes(super().cat_file(path, start=start, end=end, **kwargs))


fsspec.register_implementation("counted", Counted, clobber=True)


@pytest.fixture
def index() -> Iterator[recordio.Index]:
    fsspec.filesystem("counted").pipe_file("/bucket/numbers.csv", b"\n".join([b"a,b", *LINES]))
    yield recordio.open_source(URI).index()
    Counted.store.clear()
    record_reading._source.cache_clear()


def task(index: recordio.Index, start: int, stop: int) -> RecordRange:
    first, offset = index.block(start)
    return RecordRange(
        uri=URI,
        format="csv",
        start=start,
        stop=stop,
        block_first_record=first,
        block_offset=offset,
        version="1",
        end_offset=index.end(stop),
    )


def read(records: RecordRange, cache: DataCacheSettings) -> list[bytes]:
    """Return the records of a task; ``Counted.asked`` has what was asked for."""
    Counted.asked.clear()
    return [each for block in record_reading.read((records,), cache) for each in block]


def test_the_beginning_of_a_file_is_looked_at_once(index: recordio.Index) -> None:
    for number, start in enumerate((20_000, 90_000, 60_000)):
        records = task(index, start, start + 10_000)
        assert read(records, DataCacheSettings("", 0)) == LINES[start : start + 10_000]
        asked = sum(stop - begin for begin, stop in Counted.asked)
        looked = 4096 if number == 0 else 0
        assert asked == looked + records.end_offset - records.block_offset


def test_what_a_job_keeps_is_not_fetched_again(index: recordio.Index, tmp_path: Path) -> None:
    spec = job_pb2.JobSpec(type=job_pb2.TRAIN)
    spec.data_cache.folder, spec.data_cache.gibibytes = str(tmp_path / "kept"), 1
    cache = decode_job(spec).data_cache
    records = task(index, 20_000, 30_000)
    assert read(records, cache) == LINES[20_000:30_000]
    assert Counted.asked
    assert read(records, cache) == LINES[20_000:30_000]
    assert Counted.asked == []
