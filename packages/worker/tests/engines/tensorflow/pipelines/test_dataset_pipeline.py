"""Minibatches by a dataset function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dataset_graph import functions_of_one_device, maps_in_pool
from pipeline_examples import (
    IN_BATCHES,
    NUMPY_AT_BUILD,
    PARSE,
    PLAIN,
    SHUFFLED,
    failing,
    join,
    load,
    numbers,
    rows,
    values,
)
from plain_loop import batches
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import EdlError
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from elasticdl.python.common.constants import Mode
from recordio import tfdata

TUNED = """
def dataset_fn(dataset, mode):
    options = tf.data.Options()
    options.autotune.enabled = True
    return dataset.map(parse).with_options(options)
"""


@pytest.mark.parametrize(
    ("source", "tuned"), [(PLAIN, False), (SHUFFLED, False), (PARSE + TUNED, True)]
)
def test_autotuning_is_off_unless_the_user_enables_it(
    zoo: ZooFolder, source: str, tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were on, the end of a task would wait a second or two for its thread."""
    seen: list[bool | None] = []
    prefetch = tf.data.Dataset.prefetch

    def look(dataset: tf.data.Dataset, *given: Any, **named: Any) -> tf.data.Dataset:
        seen.append(dataset.options().autotune.enabled)
        return prefetch(dataset, *given, **named)

    model_file = load(zoo, source)
    monkeypatch.setattr(tf.data.Dataset, "prefetch", look)
    assert sorted(join(numbers(batches(model_file, rows(0, 40))))) == list(range(40))
    assert seen[-1] is tuned


def test_mapped_functions_run_in_the_calling_thread_and_start_fast(
    zoo: ZooFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record would cost in a thread pool several times what the function does."""
    seen: list[tuple[list[bool], list[bool]]] = []
    prefetch = tf.data.Dataset.prefetch

    def look(dataset: tf.data.Dataset, *given: Any, **named: Any) -> tf.data.Dataset:
        seen.append((maps_in_pool(dataset), functions_of_one_device(dataset)))
        return prefetch(dataset, *given, **named)

    # The graph of a dataset of Python records cannot be serialized.
    slices = tf.data.Dataset.from_tensor_slices(rows(0, 40))
    monkeypatch.setattr(tfdata, "from_blocks", lambda *_, **__: slices)
    model_file = load(zoo, SHUFFLED)
    monkeypatch.setattr(tf.data.Dataset, "prefetch", look)
    assert sorted(join(numbers(batches(model_file, rows(0, 40))))) == list(range(40))
    assert seen[-1] == ([False], [True])


def test_the_global_generators_are_restored(zoo: ZooFolder) -> None:
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


def test_a_function_that_always_shuffles_predicts_in_order(zoo: ZooFolder) -> None:
    always = SHUFFLED.replace("dataset if mode == Mode.PREDICTION else ", "")
    model_file = load(zoo, always)
    with pytest.warns(CompatibilityWarning, match="shuffle.. is ignored") as warned:
        found = batches(model_file, rows(0, 50), mode=Mode.PREDICTION, size=7)
    assert join(values(found)) == list(range(50))
    assert warned[0].lineno == zoo.line("mine.py", ".shuffle(64)")
    assert join(numbers(batches(model_file, rows(0, 50)))) != list(range(50))


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
def test_a_pipeline_with_state_is_not_reused_for_another_task(zoo: ZooFolder, source: str) -> None:
    model_file = load(zoo, source)
    for task in range(3):
        found = batches(model_file, rows(100 * task, 100 * task + 30))
        assert join(numbers(found)) == list(range(100 * task, 100 * task + 30))


def test_a_pipeline_without_state_is_traced_once_for_all_tasks(zoo: ZooFolder) -> None:
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


def test_a_function_that_ignores_errors_does_not_hide_reading_errors(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        PARSE + "\ndef dataset_fn(dataset, mode):\n    return dataset.map(parse).ignore_errors()",
    )
    damaged = recordio.DamagedFile("a.recordio", 3, 77, "bad CRC")
    with pytest.raises(EdlError, match="bad CRC"):
        list(model_file.batches(failing(damaged), mode=Mode.TRAINING, minibatch_size=8, seed=0))


def test_a_dataset_function_gets_the_column_names(zoo: ZooFolder) -> None:
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
    assert join(numbers(found)) == list(range(10, 60))


@pytest.mark.parametrize("size", [1, 4, 6, 9, 100])
@pytest.mark.parametrize("skip", [0, 2])
def test_batches_of_any_size_give_the_minibatches_of_single_records(
    zoo: ZooFolder, size: int, skip: int
) -> None:
    """So it is the task alone that decides what a minibatch holds, also when it is continued."""
    single = numbers(batches(load(zoo, PLAIN), rows(0, 21), size=6, skip=skip))
    model_file = load(zoo, IN_BATCHES.replace("SIZE", str(size)))
    found = [numbers(batches(model_file, rows(0, 21), size=6, skip=skip)) for _ in "ab"]
    assert found == [single, single]
    assert [len(one) for one in single] == [6, 6, 6, 3][skip:]
