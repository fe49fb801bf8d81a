"""The records of a task that the master has mixed: which, in which order, and how they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import recordio
from edl_worker.core.job import DataCacheSettings
from edl_worker.core.tasks import Lease, RecordRange, TaskKey, TaskType
from edl_worker.tasks import record_reading, task_errors
from edl_worker.tasks.record_reading import read, read_at_once, read_range, shuffle

NO_CACHE = DataCacheSettings("", 0)
RECORDS = [b"%04d" % number for number in range(2_000)]


@pytest.fixture
def index(tmp_path: Path) -> recordio.Index:
    with recordio.Writer(str(tmp_path / "a.recordio"), chunk_records=100) as writer:
        for record in RECORDS:
            writer.write(record)
    return recordio.open_source(str(tmp_path / "a.recordio")).index()


def part(file: Path, index: recordio.Index, start: int, stop: int) -> RecordRange:
    """A range within a block, as the master names it."""
    first, offset = index.block(start)
    return RecordRange(
        uri=str(file),
        format=file.suffix[1:],
        start=start,
        stop=stop,
        block_first_record=first,
        block_offset=offset,
        end_offset=index.end(stop),
        block_stop_record=index.next_block(start),
    )


def join(blocks: Iterator[list[bytes]]) -> list[bytes]:
    return [record for block in blocks for record in block]


def test_a_block_is_read_once_for_all_tasks_that_have_a_part_of_it(
    tmp_path: Path, index: recordio.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[int, int]] = []
    source_type = type(recordio.open_source(str(tmp_path / "a.recordio")))
    read_blocks = source_type.read_blocks

    def count_reads(self: recordio.Source, start: int, stop: int, **more: object) -> object:
        reads.append((start, stop))
        return read_blocks(self, start, stop, **more)

    monkeypatch.setattr(source_type, "read_blocks", count_reads)
    file = tmp_path / "a.recordio"
    for first in range(300, 400, 20):
        ranges = [part(file, index, first, first + 20), part(file, index, 710, 730)]
        found = join(read(ranges, NO_CACHE))
        assert found == RECORDS[first : first + 20] + RECORDS[710:730]
    assert reads == [(300, 400), (700, 800)]
    assert join(read([part(file, index, 500, 600)], NO_CACHE)) == RECORDS[500:600]


def test_a_file_that_has_changed_is_refused_also_where_its_block_is_kept(
    tmp_path: Path, index: recordio.Index
) -> None:
    file = tmp_path / "a.recordio"
    version = recordio.open_source(str(file))
    version.index()
    wanted = replace(part(file, index, 300, 320), version=version.version)
    assert join(read([wanted], NO_CACHE)) == RECORDS[300:320]
    with recordio.Writer(str(file), chunk_records=100) as writer:
        for record in reversed(RECORDS):
            writer.write(record)
    with pytest.raises(recordio.ChangedFile):
        join(read([wanted], NO_CACHE))


def test_damage_elsewhere_in_a_block_is_no_fault_of_this_task(tmp_path: Path) -> None:
    file = tmp_path / "a.tfrecord"
    with recordio.TFRecordWriter(str(file)) as writer:
        for record in RECORDS[:50]:
            writer.write(record)
    index = recordio.open_source(str(file)).index()
    content = bytearray(file.read_bytes())
    content[40 * 20 + 14] ^= 1  # in record 40
    file.write_bytes(content)
    assert join(read_range(part(file, index, 10, 20), NO_CACHE)) == RECORDS[10:20]
    with pytest.raises(recordio.DamagedFile, match="record 40"):
        join(read_range(part(file, index, 30, 45), NO_CACHE))


def test_the_seed_alone_decides_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks(size: int) -> Iterator[list[bytes]]:
        return (RECORDS[first : first + size] for first in range(0, len(RECORDS), size))

    order = join(shuffle(lambda: blocks(100), 7))
    assert sorted(order) == RECORDS
    assert order != RECORDS
    assert join(shuffle(lambda: blocks(37), 7)) == order
    assert join(shuffle(lambda: blocks(100), 8)) != order
    # More than may be held is shuffled in groups: the records of the first come first.
    monkeypatch.setattr(record_reading, "_SHUFFLED_BYTES", 500 * (64 + 4))
    order = join(shuffle(lambda: blocks(100), 7))
    assert [sorted(order[first : first + 500]) for first in range(0, 2_000, 500)] == [
        RECORDS[first : first + 500] for first in range(0, 2_000, 500)
    ]


def test_ranges_of_a_store_are_requested_at_the_same_time_and_come_in_order() -> None:
    all_wait = threading.Barrier(8)

    def reader(number: int) -> Iterator[list[bytes]]:
        all_wait.wait(60)
        yield [RECORDS[number]]

    readers = [lambda number=number: reader(number) for number in range(16)]
    assert join(read_at_once(readers)) == RECORDS[:16]


def test_a_reader_that_fails_ends_the_reading() -> None:
    def fail() -> Iterator[list[bytes]]:
        raise recordio.UnreadableFile("gone")

    reading = read_at_once([lambda: iter([RECORDS[:1]]), fail, lambda: iter([RECORDS[:1]])])
    assert next(reading) == RECORDS[:1]
    with pytest.raises(recordio.UnreadableFile, match="gone"):
        next(reading)


def test_messages_join_ranges_that_follow_each_other() -> None:
    ranges = (RecordRange("/d/a.csv", start=5, stop=7), RecordRange("/d/a.csv", start=7, stop=9))
    far = RecordRange("/d/b.csv", start=1, stop=2)
    key = TaskKey(TaskType.TRAINING, 0, 3)
    assert str(Lease(key, 1, ranges)) == "training 0/3 a.csv[5:9]"
    assert str(Lease(key, 1, (*ranges, far))) == "training 0/3 a.csv[5:9] and 1 other ranges"
    forging = RecordRange("/d/e\n03:14:06 forged.csv", start=0, stop=9)
    assert str(Lease(key, 1, (forging,))) == "training 0/3 e\\n03:14:06 forged.csv[0:9]"
    assert task_errors.place(Lease(key, 1, (*ranges, far))) == (
        "/d/a.csv, records [5, 9); /d/b.csv, records [1, 2)"
    )
    assert Lease(key, 1, (*ranges, far)).record_count == 5


def test_a_record_is_named_by_its_line_where_counting_lines_takes_no_time(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n" + "".join(f'{number},"two\nlines"\n' for number in range(2_000)))
    found = part(file, recordio.open_source(str(file)).index(), 1_500, 1_600)
    assert found.block_first_record == 1_024
    assert record_reading.place(found, NO_CACHE, 1_510) == f"{file}:3022"
    far = replace(found, block_offset=2 << 30)
    assert record_reading.place(far, NO_CACHE, 1_510) == f"{file}, record 1510"
