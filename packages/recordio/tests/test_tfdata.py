"""Records as a tf.data.Dataset."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Kind, rows

import recordio
from recordio import tfdata


def test_the_package_does_not_import_tensorflow() -> None:
    program = (
        "import sys, recordio, recordio.tfdata, recordio.example;"
        "sys.exit('tensorflow' in sys.modules or 'fsspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=200, check=False).returncode == 0


tf: Any = pytest.importorskip("tensorflow")


def elements(dataset: Any) -> list[bytes]:
    return list(dataset.as_numpy_iterator())


def test_any_source_feeds_a_dataset(kind: Kind, tmp_path: Path) -> None:
    records = kind.rows(3_000)
    path = str(tmp_path / kind.name)
    kind.write(path, records)
    dataset = tfdata.dataset([path])
    assert dataset.element_spec == tf.TensorSpec([], tf.string)
    assert elements(dataset) == records
    assert elements(dataset) == records  # again, from the beginning
    source = recordio.open_source(path)
    hint = source.index().block(2_000)
    ranges = [(path, 5, 9), (source, 2_000, 2_500, hint), source]
    assert elements(tfdata.dataset(ranges)) == records[5:9] + records[2_000:2_500] + records


def test_tensorflow_reads_the_tfrecords_written_here_and_the_other_way(tmp_path: Path) -> None:
    records = [bytes([i % 256]) * (i % 3_000) for i in range(2_000)]
    for name, compression in (("a.tfrecord", ""), ("a.tfrecord.gz", "GZIP")):
        path = str(tmp_path / name)
        with recordio.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)
        assert elements(tf.data.TFRecordDataset(path, compression)) == records
        with tf.io.TFRecordWriter(path, compression) as theirs:
            for record in records:
                theirs.write(record)
        assert list(recordio.open_source(path).read(0, 2_000)) == records


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1], [0, 3, 0, 5], [1] * 300, [200_000], [70_000, 1, 70_000]],
    ids=str,
)
def test_blocks_of_any_size(sizes: list[int]) -> None:
    records = [b"%d" % i for i in range(sum(sizes))]

    def blocks() -> Iterator[list[bytes]]:
        at = 0
        for size in sizes:
            yield records[at : at + size]
            at += size

    batches = tfdata.from_blocks(blocks).batch(1_000).as_numpy_iterator()
    assert [record for batch in batches for record in batch] == records


def test_long_records_and_every_byte() -> None:
    records = [b"", b"\0", b"\0" * 7_000_000, bytes(range(256)) * 10, "ü".encode(), b"\xff\xfe"]
    assert elements(tfdata.from_blocks(lambda: iter([records]))) == records


def test_each_iteration_asks_for_the_blocks_anew() -> None:
    calls = iter([[b"a"], [b"b", b"c"]])
    dataset = tfdata.from_blocks(lambda: iter([next(calls)])).map(tf.strings.length).batch(9)
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [[1]]
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [[1, 1]]


def test_iterations_at_once_do_not_disturb_each_other() -> None:
    dataset = tfdata.from_blocks(lambda: iter([[b"%d" % i] for i in range(5_000)]))
    expected = [b"%d" % i for i in range(5_000)]
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append(elements(dataset))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert found == [expected] * 3


def test_nothing_stays_behind_when_a_dataset_is_gone() -> None:
    class Blocks:
        def __call__(self) -> Iterator[list[bytes]]:
            return iter([[b"a"]])

    blocks = Blocks()
    kept = weakref.ref(blocks)
    dataset = tfdata.from_blocks(blocks).batch(2)
    assert len(list(dataset)) == 1
    del blocks
    gc.collect()
    assert kept() is not None
    del dataset
    gc.collect()
    assert kept() is None


def test_a_cleared_session_does_no_harm() -> None:
    dataset = tfdata.from_blocks(lambda: iter([[b"a"]]))
    tf.keras.backend.clear_session()
    gc.collect()
    assert elements(dataset) == [b"a"]
    assert elements(tfdata.from_blocks(lambda: iter([[b"b"]]))) == [b"b"]


def test_the_datasets_made_from_it_keep_it_alive() -> None:
    dataset = tfdata.from_blocks(lambda: iter([[b"a", b"b"]])).map(lambda x: x).prefetch(1)
    gc.collect()
    assert elements(dataset) == [b"a", b"b"]
    iterator = iter(dataset)
    del dataset
    gc.collect()
    assert [x.numpy() for x in iterator] == [b"a", b"b"]


def test_an_iteration_that_is_given_up_closes_the_blocks() -> None:
    closed = threading.Event()

    def blocks() -> Iterator[list[bytes]]:
        try:
            while True:
                yield [b"x" * 1_000] * 1_000
        finally:
            closed.set()

    iterator = iter(tfdata.from_blocks(blocks).batch(10))
    next(iterator)
    del iterator
    gc.collect()
    assert closed.wait(200)


@pytest.fixture
def damaged_file(tmp_path: Path) -> tuple[str, list[bytes]]:
    records = rows(1_000)
    path = tmp_path / "a.recordio"
    with recordio.Writer(str(path), chunk_bytes=2_000) as writer:
        for record in records:
            writer.write(record)
    content = bytearray(path.read_bytes())
    offset = recordio.open_source(str(path)).index().offsets[5]
    content[offset + 30] ^= 1
    path.write_bytes(content)
    return str(path), records


@pytest.mark.parametrize("how", ["as it is", "batched", "mapped", "swallowed"])
def test_the_readers_own_error_reaches_the_consumer(
    damaged_file: tuple[str, list[bytes]], how: str
) -> None:
    path, records = damaged_file
    relay = tfdata.ErrorRelay()
    dataset = tfdata.dataset([path], relay=relay)
    match how:
        case "batched":
            dataset = dataset.batch(1)
        case "mapped":
            dataset = dataset.map(tf.strings.lower).shuffle(1).prefetch(3)
        case "swallowed":
            dataset = dataset.ignore_errors()
    found: list[bytes] = []

    def iterate() -> None:
        for element in relay.iterate(dataset):
            found.append(element.numpy())

    with pytest.raises(recordio.DamagedFile) as caught:
        iterate()
    assert str(caught.value).startswith(f"{path}: chunk 5, offset ")
    assert "CRC" in str(caught.value)
    with pytest.raises(recordio.DamagedFile):
        relay.reraise()
    # What is before the damage came through.
    first = recordio.open_source(path).index().first_records[5]
    assert len(found) == first
    assert how == "batched" or found == records[:first]


def test_errors_that_are_not_the_readers_stay_what_they_are() -> None:
    relay = tfdata.ErrorRelay()
    dataset = tfdata.from_blocks(lambda: iter([[b"1", b"x"]]), relay=relay)
    numbers = dataset.map(tf.strings.to_number)
    with pytest.raises(tf.errors.InvalidArgumentError, match="StringToNumber"):
        list(relay.iterate(numbers))
    relay.reraise()


def test_a_range_that_the_file_does_not_hold_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "a.recordio")
    with recordio.Writer(path) as writer:
        writer.write(b"x")
    relay = tfdata.ErrorRelay()
    with pytest.raises(recordio.RecordError, match="ends after 1"):
        list(relay.iterate(tfdata.dataset([(path, 0, 2)], relay=relay)))


def test_a_failure_is_of_the_last_iteration() -> None:
    outcomes = iter([OSError("gone"), None])
    relay = tfdata.ErrorRelay()

    def blocks() -> Iterator[list[bytes]]:
        if (error := next(outcomes)) is not None:
            raise error
        yield [b"a"]

    dataset = tfdata.from_blocks(blocks, relay=relay)
    with pytest.raises(OSError, match="gone"):
        list(relay.iterate(dataset))
    assert [x.numpy() for x in relay.iterate(dataset)] == [b"a"]
