"""Both input pipelines: minibatches depend on records and seed only."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from pipeline_examples import (
    PLAIN,
    RANDOM_OPS,
    RANDOM_OPS_ALONE,
    RANDOMNESS,
    RECORDS,
    SHUFFLED,
    failing,
    join,
    load,
    numbers,
    rows,
    values,
)
from plain_loop import batches, in_blocks
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import EdlError, ErrorCode
from elasticdl.python.common.constants import Mode


@pytest.mark.parametrize("source", RANDOMNESS.values(), ids=RANDOMNESS)
def test_a_seed_fixes_the_minibatches(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    records = rows(0, 100)
    first = batches(model_file, records, seed=1)
    np.random.random()
    tf.random.uniform([])
    again = batches(model_file, records, seed=1)
    elsewhere = batches(load(zoo, source), records, seed=1)
    other = batches(model_file, records, seed=2)
    assert values(first) == values(again) == values(elsewhere)
    assert values(first) != values(other)
    assert sorted(join(numbers(first))) == list(range(100))
    assert [batch.size for batch in first] == [16] * 6 + [4]


@pytest.mark.parametrize("source", RANDOMNESS.values(), ids=RANDOMNESS)
def test_minibatches_after_skipped_ones_are_the_same(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    records = rows(0, 100)
    whole = values(batches(model_file, records))
    for skip in (3, 7, 9):  # of 7
        assert values(batches(model_file, records, skip=skip)) == whole[skip:]


@pytest.mark.parametrize("source", RANDOMNESS.values(), ids=RANDOMNESS)
def test_pipelines_in_other_threads_do_not_interfere(zoo: ZooFolder, source: str) -> None:
    """A worker builds and reads the pipeline of the next task during the current one."""
    model_file = load(zoo, source)
    tasks = [rows(100 * task, 100 * task + 100) for task in range(2)]
    alone = [values(batches(model_file, records, seed=i)) for i, records in enumerate(tasks)]
    together: dict[int, list[list[float]]] = {}
    begin = threading.Barrier(len(tasks) + 1)
    over = threading.Event()

    def run(task: int) -> None:
        begin.wait(200)
        together[task] = values(batches(model_file, tasks[task], seed=task))

    def disturb() -> None:
        begin.wait(200)
        while not over.is_set():
            np.random.random(10)
            np.random.seed(3)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(len(tasks))]
    noise = threading.Thread(target=disturb)
    if source in (SHUFFLED, RANDOM_OPS, RANDOM_OPS_ALONE):
        noise.start()
    else:
        begin = threading.Barrier(len(tasks))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    over.set()
    if noise.ident:
        noise.join(200)
    assert [together[task] for task in range(len(tasks))] == alone


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_every_record_comes_once(zoo: ZooFolder, source: str, size: int) -> None:
    model_file = load(zoo, source)
    for task in range(2):
        found = batches(model_file, rows(100 * task, 100 * task + 100), size=size)
        assert sorted(join(numbers(found))) == list(range(100 * task, 100 * task + 100))
        assert [batch.size for batch in found][:-1] == [size] * (len(found) - 1)
        assert sum(batch.size for batch in found) == 100


@pytest.mark.parametrize("source", [PLAIN, RECORDS], ids=["plain", "records"])
def test_without_shuffle_records_keep_their_order(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    assert join(numbers(batches(model_file, rows(0, 50), size=7))) == list(range(50))


@pytest.mark.parametrize("source", [SHUFFLED, RECORDS], ids=["dataset_fn", "input_fn"])
def test_predictions_have_no_labels_and_keep_the_order(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source, purpose=Mode.PREDICTION)
    found = batches(model_file, rows(0, 50), mode=Mode.PREDICTION, size=7)
    assert all(batch.labels is None for batch in found)
    assert join(values(found)) == list(range(50))


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
def test_a_task_without_records(zoo: ZooFolder, source: str) -> None:
    assert batches(load(zoo, source), []) == []


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
def test_an_abandoned_task_does_not_affect_the_next(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    before = threading.active_count()
    for task in range(3):
        left = model_file.batches(
            in_blocks(rows(1000, 2000)), mode=Mode.TRAINING, minibatch_size=8, seed=0
        )
        next(left)
        left.close()
        found = batches(model_file, rows(100 * task, 100 * task + 20))
        assert sorted(join(numbers(found))) == list(range(100 * task, 100 * task + 20))
    if source is RECORDS:
        assert threading.active_count() <= before


def test_an_abandoned_task_stops_reading(zoo: ZooFolder) -> None:
    read = []

    def blocks() -> Iterator[list[bytes]]:
        for start in range(0, 100_000, 100):
            read.append(start)
            yield rows(start, start + 100)

    model_file = load(zoo, RECORDS)
    left = model_file.batches(blocks, mode=Mode.TRAINING, minibatch_size=10, seed=0)
    next(left)
    left.close()
    assert len(read) < 10


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (recordio.DamagedFile("a.recordio", 3, 77, "bad CRC"), ErrorCode.DATA_DAMAGED),
        (recordio.UnreadableFile("a.recordio is gone"), ErrorCode.DATA_UNREADABLE),
        (PermissionError(13, "Permission denied", "a.recordio"), ErrorCode.DATA_UNREADABLE),
        (EdlError(ErrorCode.TIMED_OUT, "a.recordio: too slow"), ErrorCode.TIMED_OUT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_reading_error_is_reported_unchanged(
    zoo: ZooFolder, source: str, error: Exception, code: int
) -> None:
    model_file = load(zoo, source)
    with pytest.raises(EdlError) as caught:
        list(model_file.batches(failing(error), mode=Mode.TRAINING, minibatch_size=8, seed=0))
    assert caught.value.code == code
    assert "a.recordio" in str(caught.value)
    assert len(batches(model_file, rows(0, 20))) == 2  # and nothing sticks
