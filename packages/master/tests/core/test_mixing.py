"""The tasks of a shuffled epoch: every record once, and each task a sample of all the data."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from fakes.job_settings import job_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.effects import Range
from edl_master.core.job import JobStateMachine
from edl_master.core.job_snapshot import mixing_of
from edl_master.core.mixing import MixedPartition, Mixing, choose_mixing
from edl_master.core.settings import JobType
from edl_master.core.tasks import TaskPartition

files = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(tuple)
mixings = st.builds(Mixing, st.integers(1, 70), st.integers(1, 9))
at_leisure = settings(deadline=None)


def count(partition: MixedPartition) -> Counter[tuple[int, int]]:
    return Counter(
        (part.file, record)
        for number in range(partition.count)
        for part in partition.ranges(number)
        for record in range(part.start, part.stop)
    )


def length(ranges: tuple[Range, ...]) -> int:
    return sum(part.stop - part.start for part in ranges)


@at_leisure
@given(files=files, per_task=st.integers(1, 60), mixing=mixings, seed=st.integers(0, 99))
def test_every_record_is_in_one_task(
    files: tuple[int, ...], per_task: int, mixing: Mixing, seed: int
) -> None:
    partition = MixedPartition(files, per_task, mixing, seed)
    assert count(partition) == {
        (f, r): 1 for f, records in enumerate(files) for r in range(records)
    }
    lengths = [length(partition.ranges(number)) for number in range(partition.count)]
    assert all(size == per_task for size in lengths[:-1]), "only the last task may be shorter"
    assert sum(lengths) == partition.records


@at_leisure
@given(
    tasks=st.integers(1, 60),
    per_task=st.integers(8, 40),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
    blocks=st.integers(2, 16),
    neighbours=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_a_task_has_as_many_records_of_each_part_of_the_data(
    tasks: int, per_task: int, cuts: list[int], blocks: int, neighbours: int, seed: int
) -> None:
    """Stratified: however the data is sorted, a task is at most a block off at each border."""
    total = tasks * per_task
    borders = [0, *sorted(min(cut, total) for cut in cuts), total]
    data = tuple(stop - start for start, stop in pairwise(borders))
    partition = MixedPartition(data, per_task, Mixing(blocks, neighbours), seed)
    block = -(-per_task // min(blocks, per_task))
    half = total // 2
    starts = borders[:-1]
    for number in range(partition.count):
        first_half = sum(
            min(max(half - starts[part.file] - part.start, 0), part.stop - part.start)
            for part in partition.ranges(number)
        )
        assert abs(first_half - per_task * half / total) <= 2 * block


def test_the_order_is_that_of_the_seed_alone() -> None:
    def ranges(seed: int, number: int) -> tuple[Range, ...]:
        return MixedPartition((900, 100), 40, Mixing(8, 2), seed).ranges(number)

    assert ranges(1, 7) == ranges(1, 7)
    assert ranges(1, 7) != ranges(2, 7), "another epoch"
    assert sorted(map(str, ranges(1, 7))) != sorted(map(str, ranges(1, 8)))
    starts = [part.start for part in ranges(1, 7)]
    assert starts != sorted(starts), "the blocks of a task come in a random order"


def test_each_part_of_the_data_has_an_order_of_its_own() -> None:
    """Otherwise a task would have the records of the same place in each part."""
    partition = MixedPartition((4000,), 40, Mixing(8, 1), seed=3)
    stratum = 4000 // 8
    for number in range(partition.count - 1):
        places = {part.start % stratum for part in partition.ranges(number)}
        assert len(places) > 4, number


def test_tasks_in_a_row_have_neighbours_so_that_a_worker_reads_a_block_once() -> None:
    unit = 100  # records of a chunk
    partition = MixedPartition((100_000,), 400, Mixing(8, 4), seed=3)  # 50 records in a block
    visits: list[set[int]] = []
    for first in range(0, 200, 4):
        row = [part for n in range(first, first + 4) for part in partition.ranges(n)]
        visits.append({chunk for p in row for chunk in (p.start // unit, (p.stop - 1) // unit)})
    assert max(map(len, visits)) <= 8 * 3, "32 blocks are in three chunks of each stratum"
    first = [min(part.start for part in partition.ranges(n)) for n in range(249)]
    rows = [first[n] // 200 for n in range(0, 248, 4)]
    assert rows != sorted(rows), "the rows of neighbours come in a random order"
    assert first[:4] != sorted(first[:4]) or first[4:8] != sorted(first[4:8])


@pytest.mark.parametrize(
    ("per_task", "record_bytes", "unit_records", "in_store", "mixing"),
    [
        (448, 79.0, 1797.0, False, Mixing(16, 64)),  # a small file: one chunk
        (4096, 900.0, 326.0, False, Mixing(16, 1)),
        (2048, 100e3, 10.0, False, Mixing(128, 1)),  # images
        (32_768, 33.0, 7700.0, False, Mixing(16, 4)),
        (4096, 900.0, 326.0, True, Mixing(8, 1)),
        (2048, 100e3, 10.0, True, Mixing(48, 1)),
        (4, 900.0, 326.0, False, Mixing(1, 82)),
        (1, 900.0, 326.0, False, Mixing(1, 326)),
        (4096, 64.0, 1e6, False, Mixing(4, 977)),  # row groups of Parquet that take 64 MB
        (4096, 1e3, 1e6, False, Mixing(1, 244)),  # one of them takes more than may be held
    ],
)
def test_blocks_are_as_small_as_reading_allows(
    per_task: int, record_bytes: float, unit_records: float, in_store: bool, mixing: Mixing
) -> None:
    assert choose_mixing(per_task, record_bytes, unit_records, in_store=in_store) == mixing


def test_messages_name_the_first_records_in_the_order_of_the_data() -> None:
    partition = MixedPartition((6, 6), 6, Mixing(3), 1, ["a.csv", "b.csv"])
    place = partition.place(0)
    assert place.startswith("records ")
    assert "a.csv; records " in place
    assert TaskPartition((6,), 3, ["a.csv"]).place(1) == "records 3 to 5 of a.csv"
    many = MixedPartition((90,), 30, Mixing(10), 1, ["a.csv"]).place(0)
    assert many.endswith(" of a.csv, and 7 more ranges")
    assert many.count(" to ") == 3


def test_a_job_of_an_earlier_version_keeps_its_tasks() -> None:
    settings = job_settings(JobType.TRAIN, shuffle=True)
    saved = JobStateMachine(settings, (9,)).snapshot()
    assert mixing_of(saved) is None
    saved["format"] = 2
    del saved["job"]["mixing"]
    assert mixing_of(saved) is None
    JobStateMachine.restore(settings, (9,), (), saved)
    mixed = job_settings(JobType.TRAIN, shuffle=True, mixing=Mixing(2, 3))
    assert mixing_of(JobStateMachine(mixed, (9,)).snapshot()) == Mixing(2, 3)
    with pytest.raises(ValueError, match="another job: mixing was None"):
        JobStateMachine.restore(mixed, (9,), (), saved)
