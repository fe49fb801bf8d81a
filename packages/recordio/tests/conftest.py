"""The kinds of files that the reader port covers, and records to put into them."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pyarrow
import pytest
from hypothesis import settings
from pyarrow import parquet

import recordio
from recordio import example

# More than usual: pytest --hypothesis-profile thorough
settings.register_profile("usual", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile("usual")


def rows(number: int) -> list[bytes]:
    """Records that every format can hold: lines of CSV, one of them over two lines."""
    return [
        b'%d,"two\nlines, ""quoted"""' % i if i % 10 == 3 else b"%d,%s" % (i, b"x" * (i % 60))
        for i in range(number)
    ]


@dataclass(frozen=True)
class Kind:
    """A way to store records.

    Attributes:
        name: of the files, after a stem.
        write: stores records at a path.
        checked: whether a checksum guards the records.
        rows: makes records that the format can hold.
    """

    name: str
    format: str
    write: Callable[[str, list[bytes]], None]
    checked: bool = True
    rows: Callable[[int], list[bytes]] = rows

    def __str__(self) -> str:
        return self.name


def _recordio(compressor: str, **options: int) -> Callable[[str, list[bytes]], None]:
    def write(path: str, records: list[bytes]) -> None:
        with recordio.Writer(path, compressor=compressor, **options) as writer:
            for record in records:
                writer.write(record)

    return write


def _tfrecord(path: str, records: list[bytes]) -> None:
    with recordio.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


def _csv(path: str, records: list[bytes]) -> None:
    content = b"\n".join([b"id,text", *records]) + b"\n"
    Path(path).write_bytes(gzip.compress(content) if path.endswith(".gz") else content)


def _parquet(group_rows: int) -> Callable[[str, list[bytes]], None]:
    def write(path: str, records: list[bytes]) -> None:
        column = [example.decode(record)["line"][0] for record in records]
        table = pyarrow.table({"line": pyarrow.array(column, pyarrow.binary())})
        parquet.write_table(table, path, row_group_size=group_rows, write_page_checksum=True)

    return write


def _examples(number: int) -> list[bytes]:
    return [example.encode({"line": row}) for row in rows(number)]


KINDS = [
    Kind("none.recordio", "recordio", _recordio("none", chunk_bytes=5_000)),
    Kind("snappy.recordio", "recordio", _recordio("snappy", chunk_bytes=5_000)),
    Kind("gzip.recordio", "recordio", _recordio("gzip", chunk_bytes=5_000)),
    Kind("few.rio", "recordio", _recordio("snappy", chunk_records=7)),
    Kind("one-chunk.rio", "recordio", _recordio("gzip", chunk_bytes=1 << 30)),
    Kind("plain.tfrecord", "tfrecord", _tfrecord),
    Kind("packed.tfrecords.gz", "tfrecord", _tfrecord),
    Kind("plain.csv", "csv", _csv, checked=False),
    Kind("packed.csv.gz", "csv", _csv, checked=False),
    Kind("groups.parquet", "parquet", _parquet(1000), rows=_examples),
    Kind("one-group.pq", "parquet", _parquet(1 << 20), rows=_examples),
]


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def store() -> Iterator[str]:
    """The URI of an empty place in a store that is no local disk."""
    place = f"memory://{uuid.uuid4().hex}"
    yield place
    system, path = fsspec.core.url_to_fs(place)
    if system.exists(path):
        system.rm(path, recursive=True)
