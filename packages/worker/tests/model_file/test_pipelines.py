"""Minibatches of a task: the same ones for the same records and seed, whatever else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dataset_graph import maps_in_pool
from example_data import example
from plain_loop import batches, in_blocks
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file import Batch, ModelFile
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from elasticdl.python.common.constants import Mode
from recordio import tfdata

HEAD = """
import random
inputs = tf.keras.Input((1,), name="x")
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))

def loss(labels, predictions):
    return tf.reduce_mean(predictions)

def optimizer():
    return tf.keras.optimizers.SGD(0.1)
"""
PARSE = """
def parse(record):
    x = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([1], tf.int64)})["x"]
    return {"x": x}, x
"""
PLAIN = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    return dataset.map(parse)
"""
)
SHUFFLED = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    dataset = dataset.map(parse)
    return dataset if mode == Mode.PREDICTION else dataset.shuffle(64)
"""
)
RANDOM_OPS = (
    PARSE
    + """
def noise(features, x):
    return {"x": tf.cast(x, tf.float32) + tf.random.uniform([1])}, x
def dataset_fn(dataset, mode):
    return dataset.map(parse).map(noise).shuffle(16)
"""
)
RANDOM_OPS_ALONE = RANDOM_OPS.replace(".shuffle(16)", "")
NUMPY_AT_BUILD = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    shift = np.random.randint(1000) + random.randint(0, 1000)
    return dataset.map(parse).map(lambda f, x: ({"x": f["x"] + shift}, x))
"""
)
RECORDS = """
def input_fn(records):
    x = np.array([[r["x"]] for r in records])
    return {"x": x}, x
"""
RANDOM_RECORDS = """
def input_fn(records):
    x = np.array([[r["x"]] for r in records])
    return {"x": x + np.random.random(x.shape) + random.random()}, x
"""
RANDOMNESS = {
    "shuffle": SHUFFLED,
    "random ops": RANDOM_OPS,
    "random ops alone": RANDOM_OPS_ALONE,
    "numpy at build": NUMPY_AT_BUILD,
    "input_fn": RANDOM_RECORDS,
}


def load(zoo: ZooFolder, source: str, **options: Any) -> ModelFile:
    zoo.write("mine.py", HEAD + source)
    return zoo.load("mine", **options)


def rows(start: int, stop: int) -> list[bytes]:
    return [example(x=np.array([number])) for number in range(start, stop)]


def values(found: list[Batch]) -> list[list[float]]:
    return [np.asarray(batch.features["x"]).reshape(-1).tolist() for batch in found]


def numbers(found: list[Batch]) -> list[list[int]]:
    return [np.asarray(batch.labels).reshape(-1).tolist() for batch in found]


def joined(minibatches: list[list[Any]]) -> list[Any]:
    return [number for minibatch in minibatches for number in minibatch]


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
    assert sorted(joined(numbers(first))) == list(range(100))
    assert [batch.size for batch in first] == [16] * 6 + [4]


TUNED = """
def dataset_fn(dataset, mode):
    options = tf.data.Options()
    options.autotune.enabled = True
    return dataset.map(parse).with_options(options)
"""


@pytest.mark.parametrize(
    ("source", "tuned"), [(PLAIN, False), (SHUFFLED, False), (PARSE + TUNED, True)]
)
def test_no_thread_tunes_a_pipeline_unless_the_user_asks_for_that(
    zoo: ZooFolder, source: str, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a task would wait for that thread, a second or two."""
    seen: list[bool | None] = []
    prefetch = tf.data.Dataset.prefetch

    def look(dataset: tf.data.Dataset, *given: Any, **named: Any) -> tf.data.Dataset:
        seen.append(dataset.options().autotune.enabled)
        return prefetch(dataset, *given, **named)

    model_file = load(zoo, source)
    monkeypatch.setattr(tf.data.Dataset, "prefetch", look)
    assert sorted(joined(numbers(batches(model_file, rows(0, 40))))) == list(range(40))
    assert seen[-1] is tuned


def test_mapped_functions_run_in_the_asking_thread(
    zoo: ZooFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool of threads each record would cost several times what its function does."""
    seen: list[list[bool]] = []
    prefetch = tf.data.Dataset.prefetch

    def look(dataset: tf.data.Dataset, *given: Any, **named: Any) -> tf.data.Dataset:
        seen.append(maps_in_pool(dataset))
        return prefetch(dataset, *given, **named)

    # What is made of Python's records cannot be looked into.
    slices = tf.data.Dataset.from_tensor_slices(rows(0, 40))
    monkeypatch.setattr(tfdata, "from_blocks", lambda *_, **__: slices)
    model_file = load(zoo, SHUFFLED)
    monkeypatch.setattr(tf.data.Dataset, "prefetch", look)
    assert sorted(joined(numbers(batches(model_file, rows(0, 40))))) == list(range(40))
    assert seen[-1] == [False]


@pytest.mark.parametrize("source", RANDOMNESS.values(), ids=RANDOMNESS)
def test_minibatches_after_skipped_ones_are_the_same(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    records = rows(0, 100)
    whole = values(batches(model_file, records))
    for skip in (1, 3, 6, 7, 9):
        assert values(batches(model_file, records, skip=skip)) == whole[skip:]


@pytest.mark.parametrize("source", RANDOMNESS.values(), ids=RANDOMNESS)
def test_pipelines_of_other_threads_change_nothing(zoo: ZooFolder, source: str) -> None:
    """The next task's pipeline is built and read while the present one is being used."""
    model_file = load(zoo, source)
    tasks = [rows(100 * task, 100 * task + 100) for task in range(4)]
    alone = [values(batches(model_file, records, seed=i)) for i, records in enumerate(tasks)]
    together: dict[int, list[list[float]]] = {}
    begin = threading.Barrier(len(tasks) + 1)
    over = threading.Event()

    def run(task: int) -> None:
        begin.wait(60)
        together[task] = values(batches(model_file, tasks[task], seed=task))

    def disturb() -> None:
        begin.wait(60)
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
        thread.join(120)
    over.set()
    if noise.ident:
        noise.join(60)
    assert [together[task] for task in range(len(tasks))] == alone


def test_each_minibatch_draws_numbers_of_its_own(zoo: ZooFolder) -> None:
    found = batches(load(zoo, RANDOM_RECORDS), rows(0, 48))
    noise = [
        tuple(round(value - number, 6) for value, number in zip(*pair, strict=True))
        for pair in zip(values(found), numbers(found), strict=True)
    ]
    assert len(set(noise)) == len(noise) == 3


def test_the_global_generators_are_as_they_were(zoo: ZooFolder) -> None:
    import random

    model_file = load(zoo, NUMPY_AT_BUILD)
    tf.random.set_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = (random.random(), np.random.random(), float(tf.random.uniform([])))
    tf.random.set_seed(5)
    random.seed(5)
    np.random.seed(5)
    batches(model_file, rows(0, 10))
    assert (random.random(), np.random.random(), float(tf.random.uniform([]))) == expected


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
@pytest.mark.parametrize("size", [1, 7, 16, 100, 1000])
def test_every_record_comes_once(zoo: ZooFolder, source: str, size: int) -> None:
    model_file = load(zoo, source)
    for task in range(3):
        found = batches(model_file, rows(100 * task, 100 * task + 100), size=size)
        assert sorted(joined(numbers(found))) == list(range(100 * task, 100 * task + 100))
        assert [batch.size for batch in found][:-1] == [size] * (len(found) - 1)
        assert sum(batch.size for batch in found) == 100


@pytest.mark.parametrize("source", [PLAIN, RECORDS], ids=["plain", "records"])
def test_without_shuffle_the_order_is_the_records(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    assert joined(numbers(batches(model_file, rows(0, 50), size=7))) == list(range(50))


@pytest.mark.parametrize("source", [SHUFFLED, RECORDS], ids=["dataset_fn", "input_fn"])
def test_predictions_have_no_labels_and_keep_the_order(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source, purpose=Mode.PREDICTION)
    found = batches(model_file, rows(0, 50), mode=Mode.PREDICTION, size=7)
    assert all(batch.labels is None for batch in found)
    assert joined(values(found)) == list(range(50))


def test_a_function_that_always_shuffles_predicts_in_order(zoo: ZooFolder) -> None:
    always = SHUFFLED.replace("dataset if mode == Mode.PREDICTION else ", "")
    model_file = load(zoo, always)
    with pytest.warns(CompatibilityWarning, match="shuffle.. is ignored") as warned:
        found = batches(model_file, rows(0, 50), mode=Mode.PREDICTION, size=7)
    assert joined(values(found)) == list(range(50))
    assert warned[0].lineno == zoo.line("mine.py", ".shuffle(64)")
    assert joined(numbers(batches(model_file, rows(0, 50)))) != list(range(50))


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
def test_a_task_without_records(zoo: ZooFolder, source: str) -> None:
    assert batches(load(zoo, source), []) == []


STATEFUL = {
    "cache": PARSE + "\ndef dataset_fn(dataset, mode):\n    return dataset.map(parse).cache()",
    "variable": PARSE
    + """
def dataset_fn(dataset, mode):
    count = tf.Variable(0, dtype=tf.int64)
    return dataset.map(parse).map(lambda f, x: (f, x + 0 * count.assign_add(1)))
""",
    "scan": PARSE
    + """
def dataset_fn(dataset, mode):
    return dataset.map(parse).scan(np.int64(0), lambda s, fx: (s + 1, fx))
""",
    "enumerate": PARSE
    + """
def dataset_fn(dataset, mode):
    return dataset.map(parse).enumerate().map(lambda i, fx: fx)
""",
    "calls": "calls = []\n"
    + PARSE
    + """
def dataset_fn(dataset, mode):
    calls.append(1)
    return dataset.map(parse)
""",
}


@pytest.mark.parametrize("source", STATEFUL.values(), ids=STATEFUL)
def test_a_pipeline_that_remembers_is_not_used_for_another_task(
    zoo: ZooFolder, source: str
) -> None:
    model_file = load(zoo, source)
    for task in range(3):
        found = batches(model_file, rows(100 * task, 100 * task + 30))
        assert joined(numbers(found)) == list(range(100 * task, 100 * task + 30))


def test_an_unchanging_pipeline_is_traced_once_for_all_tasks(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        "traces = []\n"
        + PARSE
        + """
def dataset_fn(dataset, mode):
    def traced(record):
        traces.append(mode)
        return parse(record)
    return dataset.map(traced)
""",
    )
    for task in range(4):
        batches(model_file, rows(task, task + 20))
    batches(model_file, rows(0, 20), mode=Mode.EVALUATION)
    import sys

    assert sys.modules["mine"].traces == [Mode.TRAINING, Mode.EVALUATION]


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
def test_a_task_that_is_left_does_not_leak_into_the_next(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    before = threading.active_count()
    for task in range(5):
        left = model_file.batches(
            in_blocks(rows(1000, 2000)), mode=Mode.TRAINING, minibatch_size=8, seed=0
        )
        next(left)
        left.close()
        found = batches(model_file, rows(100 * task, 100 * task + 20))
        assert sorted(joined(numbers(found))) == list(range(100 * task, 100 * task + 20))
    if source is RECORDS:
        assert threading.active_count() <= before


def test_records_of_a_left_task_are_not_all_read(zoo: ZooFolder) -> None:
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


# What goes wrong.


def failing(error: Exception, after: int = 20) -> Callable[[], Iterator[list[bytes]]]:
    def blocks() -> Iterator[list[bytes]]:
        yield rows(0, after)
        raise error

    return blocks


@pytest.mark.parametrize("source", [PLAIN, SHUFFLED, RECORDS], ids=["plain", "shuffled", "records"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (recordio.DamagedFile("a.recordio", 3, 77, "bad CRC"), error_pb2.DATA_DAMAGED),
        (recordio.UnreadableFile("a.recordio is gone"), error_pb2.DATA_UNREADABLE),
        (PermissionError(13, "Permission denied", "a.recordio"), error_pb2.DATA_UNREADABLE),
        (EdlError(error_pb2.TIMED_OUT, "a.recordio: too slow"), error_pb2.TIMED_OUT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_the_reader_is_told_as_it_is(
    zoo: ZooFolder, source: str, error: Exception, code: int
) -> None:
    model_file = load(zoo, source)
    with pytest.raises(EdlError) as caught:
        list(model_file.batches(failing(error), mode=Mode.TRAINING, minibatch_size=8, seed=0))
    assert caught.value.code == code
    assert "a.recordio" in str(caught.value)
    assert len(batches(model_file, rows(0, 20))) == 2  # and nothing sticks


def test_a_function_that_ignores_errors_does_not_hide_the_reader_s(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        PARSE + "\ndef dataset_fn(dataset, mode):\n    return dataset.map(parse).ignore_errors()",
    )
    damaged = recordio.DamagedFile("a.recordio", 3, 77, "bad CRC")
    with pytest.raises(EdlError, match="bad CRC"):
        list(model_file.batches(failing(damaged), mode=Mode.TRAINING, minibatch_size=8, seed=0))


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return {'x': records[0]['y']}, 1", error_pb2.USER_CODE, "no feature 'y'; it has x"),
        ("return 1 / 0", error_pb2.USER_CODE, "ZeroDivisionError"),
        ("return {'x': np.zeros((3, 1))}, np.zeros(3)", error_pb2.SHAPE_MISMATCH, "got 10 records"),
        ("return {'x': np.zeros((10, 1))}, np.zeros(3)", error_pb2.SHAPE_MISMATCH, "labels"),
        ("return {'x': [[1], [2, 3]]}, [1, 2]", error_pb2.SHAPE_MISMATCH, "not a tensor"),
        ("return 1, 2, 3", error_pb2.MODEL_CONTRACT, "returned 3 values"),
        ("return np.zeros((10, 1))", error_pb2.MODEL_CONTRACT, "returned ndarray"),
    ],
)
def test_an_input_function_that_breaks_the_contract(
    zoo: ZooFolder, body: str, code: int, said: str
) -> None:
    model_file = load(zoo, f"def input_fn(records):\n    {body}")
    with pytest.raises(EdlError) as caught:
        batches(model_file, rows(0, 10))
    assert caught.value.code == code
    assert said in caught.value.what
    assert f"{zoo.root}/mine.py:" in caught.value.where


def test_a_record_that_is_no_example(zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        batches(load(zoo, RECORDS), [b"\xff\xff\xff"])
    assert caught.value.code == error_pb2.DATA_DAMAGED
    assert "edl data convert" in caught.value.remedy


# What an input function sees.


def test_values_of_a_record(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def input_fn(records, mode):
    (r,) = records
    assert mode == Mode.TRAINING
    assert r["word"] == b"w" and r["words"] == [b"a", b"b"]
    assert r["one"] == 7 and r["one"].dtype == np.int64 and r["one"].shape == ()
    assert r["floats"].tolist() == [0.5, 1.5] and r["floats"].dtype == np.float32
    return np.zeros((1, 1)), np.zeros(1)
""",
    )
    message = tf.train.Example.FromString(
        example(word=b"w", one=np.array([7]), floats=np.array([0.5, 1.5], np.float32))
    )
    message.features.feature["words"].bytes_list.value.extend([b"a", b"b"])
    assert len(batches(model_file, [message.SerializeToString()])) == 1


def test_rows_of_a_csv_file(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def input_fn(records):
    assert [r["name"] for r in records] == [b"Ann, Lee", b"Bob"]
    assert records[0]["age"].dtype == np.int64 and records[0]["pay"].dtype == np.float64
    return np.array([[r["pay"]] for r in records]), np.array([r["age"] for r in records])
""",
    )
    rows_ = [b'"Ann, Lee",31,1.5', b"Bob,42,-2e3"]
    (batch,) = batches(model_file, rows_, columns=["name", "age", "pay"])
    assert np.asarray(batch.features).reshape(-1).tolist() == [1.5, -2000.0]
    assert np.asarray(batch.labels).tolist() == [31, 42]


def test_a_csv_row_that_is_too_short(zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        batches(load(zoo, RECORDS), [b"1,2"], columns=["x", "y", "z"])
    assert caught.value.code == error_pb2.DATA_DAMAGED
    assert "2 fields, the header 3" in caught.value.what


def test_a_dataset_function_is_told_the_columns(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def dataset_fn(dataset, mode, metadata):
    assert metadata.column_names == ("x", "y")
    def parse(line):
        x, y = tf.io.decode_csv(line, [0, 0])
        return {"x": [x]}, [y]
    return dataset.map(parse)
""",
    )
    (batch,) = batches(model_file, [b"1,2", b"3,4"], columns=["x", "y"])
    assert numbers([batch]) == [[2, 4]]


def test_minibatches_of_a_real_file(zoo: ZooFolder, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.recordio")
    with recordio.Writer(uri) as writer:
        for record in rows(0, 100):
            writer.write(record)
    model_file = load(zoo, PLAIN)
    found = list(
        model_file.batches(
            lambda: recordio.open_source(uri).read_blocks(10, 60),
            mode=Mode.TRAINING,
            minibatch_size=20,
            seed=0,
        )
    )
    assert joined(numbers(found)) == list(range(10, 60))
