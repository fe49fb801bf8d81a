"""Functions that parse records run on batches of them, with equal results, or stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dataset_graph import takes_batches_apart

from edl_worker.engines.tensorflow.internals import mapped_function
from edl_worker.engines.tensorflow.pipelines.batched_parsing import SIZE, BatchedFunctions
from edl_worker.engines.tensorflow.pipelines.map_execution import (
    efficient_maps,
    functions_on_one_device,
)
from recordio import example

RECORDS = [
    example.encode(
        {"x": np.float32([n, n / 7 - 3]), "id": [n], "number": [n], "word": [str(n % 5)]}
    )
    for n in range(2 * SIZE + 5)
]
X = tf.io.FixedLenFeature([2], tf.float32)
NUMBER = tf.io.FixedLenFeature([], tf.int64)
ID = tf.io.FixedLenFeature([1], tf.int64)
WORD = tf.io.FixedLenFeature([], tf.string)
MISSING = tf.io.FixedLenFeature([2], tf.float32, default_value=[0.5, -1.0])
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["1"], [2]), 0)


def parse(record: Any, **features: Any) -> Any:
    return tf.io.parse_single_example(record, features)


def with_label(record: Any) -> Any:
    parsed = parse(record, x=X, id=ID)
    label = tf.cast(parsed["id"] % 3 == 0, tf.float32)
    return {"log": tf.math.log1p(tf.abs(parsed["x"])), "id": parsed["id"]}, label


def with_constants(record: Any) -> Any:
    x = parse(record, x=X)["x"]
    return tf.where(x > 10.0, (x - [1.0, 2.0]) / [3.0, 4.0], tf.sqrt(tf.constant(2.0)) * x)


def with_defaults(record: Any) -> Any:
    parsed = parse(record, missing=MISSING, word=WORD)
    return parsed["missing"] * 2.0, parsed["word"] == "3"


def as_nested(record: Any) -> Any:
    parsed = parse(record, x=X, id=ID, word=WORD)
    return {"b": parsed["x"], "a": (parsed["id"], {"c": parsed["word"]})}, parsed["id"], parsed["x"]


def with_stacks(record: Any) -> Any:
    parsed = parse(record, x=X, word=WORD, number=NUMBER)
    number = tf.cast(parsed["number"], tf.float32)
    pairs = tf.stack([parsed["x"], parsed["x"] + 1.0]), tf.stack([parsed["x"]] * 3, axis=-1)
    return tf.stack([number, number / 2.0]), *pairs


SAME: tuple[Callable[[Any], Any], ...] = (
    with_label,
    with_constants,
    with_defaults,
    as_nested,
    with_stacks,
)


def of_rank_zero(record: Any) -> Any:
    """A constant of a higher rank: a batch would meet it in another dimension."""
    return parse(record, number=NUMBER)["number"] + [1, 2, 3]


def of_two_ranks(record: Any) -> Any:
    parsed = parse(record, x=X, number=NUMBER)
    return parsed["x"] * tf.cast(parsed["number"], tf.float32)


LEFT: tuple[Callable[[Any], Any], ...] = (
    of_rank_zero,
    of_two_ranks,
    lambda record: record,
    lambda record: tf.stack([parse(record, number=NUMBER)["number"], 1]),
    lambda record: (parse(record, x=X)["x"], tf.constant(1.0)),
    lambda record: tf.reduce_sum(parse(record, x=X)["x"]),
    lambda record: parse(record, x=X)["x"][0],
    lambda record: tf.reshape(parse(record, x=X)["x"], [1, 2]),
    lambda record: parse(record, x=X)["x"] + tf.random.uniform([2]),
    lambda record: TABLE.lookup(parse(record, word=WORD)["word"]),
    lambda record: parse(record, x=tf.io.VarLenFeature(tf.float32))["x"],
    lambda record: tf.io.parse_single_sequence_example(record, {"x": X})[0]["x"],
    lambda record: tf.io.decode_raw(record, tf.uint8),
)


def results(dataset: tf.data.Dataset, function: Callable[[Any], Any]) -> list[Any]:
    mapped = dataset.map(function)
    if isinstance(mapped.element_spec, tf.SparseTensorSpec):
        mapped = mapped.map(tf.sparse.to_dense)
    return [tf.nest.map_structure(np.asarray, each) for each in mapped.shuffle(7, seed=1)]


@pytest.mark.parametrize("function", [*SAME, *LEFT])
def test_results_are_the_same(function: Callable[[Any], Any]) -> None:
    records = tf.data.Dataset.from_tensor_slices(RECORDS)
    if "random" in function.__code__.co_names:
        return
    expected = results(records, function)
    with efficient_maps(records), functions_on_one_device():
        mapped = records.map(function)
        assert mapped.element_spec == tf.data.Dataset.map(records, function).element_spec
        found = results(records, function)
    assert len(found) == len(expected) == len(RECORDS)
    for ours, theirs in zip(found, expected, strict=True):
        tf.nest.assert_same_structure(ours, theirs)
        for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
            assert one.shape == other.shape
            if one.dtype == np.float32:
                np.testing.assert_allclose(one, other, rtol=1e-6)
            else:
                assert (one == other).all()


def batched_forms(function: Callable[[Any], Any]) -> list[Any]:
    """Return the batched form of a function, as a list with it; empty if there is none."""
    records, found = tf.data.Dataset.from_tensor_slices(RECORDS), []
    mapped = mapped_function(records.map(function))
    BatchedFunctions().find(mapped, lambda batched: found.append(batched) or batched)
    return found


def test_what_only_parses_and_computes_with_elements_is_batched() -> None:
    assert [len(batched_forms(function)) for function in SAME] == [1] * len(SAME)
    assert [len(batched_forms(function)) for function in LEFT] == [0] * len(LEFT)


def test_large_examples_stay_as_they_are() -> None:
    many = tf.io.FixedLenFeature([5000], tf.float32)
    assert not batched_forms(lambda record: parse(record, x=many)["x"])


def test_a_function_is_batched_once_for_all_pipelines() -> None:
    kept, traces = BatchedFunctions(), []
    records = tf.data.Dataset.from_tensor_slices(RECORDS)
    for _ in range(3):
        mapped = mapped_function(records.map(lambda record: parse(record, x=X)["x"] * 2.0))
        kept.find(mapped, lambda batched: traces.append(batched) or batched)
    assert len(traces) == 1


def test_maps_of_other_datasets_are_not_batched() -> None:
    records = tf.data.Dataset.from_tensor_slices(RECORDS)
    with efficient_maps(records):
        chosen = records.filter(lambda record: tf.strings.length(record) > 0).map(with_label)
        assert not takes_batches_apart(chosen)
        assert takes_batches_apart(records.map(with_label))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (example.encode({"x": np.float32([1.0])}), "Number of float values"),
        (example.encode({"id": [1]}), "Feature: x"),
        (example.encode({"x": [1, 2]}), "Data types don't match"),
        (b"1,2", "Could not parse example input"),
    ],
)
def test_a_record_that_does_not_fit_is_an_error(record: bytes, words: str) -> None:
    records = tf.data.Dataset.from_tensor_slices([*RECORDS[:3], record])
    with efficient_maps(records):
        dataset = records.map(lambda record: parse(record, x=X)["x"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        list(dataset)
