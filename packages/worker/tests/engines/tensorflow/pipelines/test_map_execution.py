"""Mapped functions run in the calling thread where possible, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dataset_graph import functions_of_one_device, maps_in_pool

from edl_worker.engines.tensorflow.pipelines.map_execution import (
    efficient_maps,
    functions_on_one_device,
)

TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), tf.constant([5, 6])), -1
)
TEN = tf.Variable(10, dtype=tf.int64)


def python(x: Any) -> Any:
    return tf.py_function(lambda value: value * 2, [x], tf.int64)


def with_numpy(x: Any) -> Any:
    return tf.numpy_function(lambda value: value * 2, [x], tf.int64)


def several(x: Any) -> Any:
    return {"a": x, "b": (tf.cast(x, tf.float32), tf.strings.as_string(x))}


def parse(x: Any) -> Any:
    tensor = tf.io.serialize_tensor(tf.fill([x + 1], 3.0))
    return tf.reduce_sum(tf.io.parse_tensor(tensor, tf.float32))


def branches(x: Any) -> Any:
    return tf.cond(x % 2 == 0, lambda: x * 2, lambda: x - 1)


def loops(x: Any) -> Any:
    while x < 10:
        x += 3
    return x


def nested_loops(x: Any) -> Any:
    return tf.function(lambda y: tf.map_fn(lambda z: z + 1, tf.range(y)))(x)


def checks(x: Any) -> Any:
    tf.debugging.assert_less(x, tf.constant(100, tf.int64))
    return x


MOVED: tuple[Callable[[Any], Any], ...] = (
    *(python, with_numpy, several, parse),
    lambda x: x,
    lambda x: 1,
    TABLE.lookup,
    lambda x: x + TEN,
    lambda x: tf.random.stateless_uniform([2], [1, x]),
    lambda x: tf.ragged.range(x + 1),
    lambda x: tf.sparse.from_dense(tf.one_hot([x], 6)),
    lambda x: tf.data.Dataset.range(x).reduce(np.int64(0), lambda a, b: a + b),
    lambda x: tf.io.decode_png(tf.io.encode_png(tf.fill([2, 2, 1], tf.cast(x, tf.uint8)))),
)
LEFT: tuple[Callable[[Any], Any], ...] = branches, loops, nested_loops, checks


def plain(element: Any) -> Any:
    """Return an element as plain Python values, for comparison."""
    if isinstance(element, tf.SparseTensor):
        element = tf.sparse.to_dense(element)
    if isinstance(element, tf.RaggedTensor):
        return element.to_list()
    return tf.nest.map_structure(lambda tensor: np.asarray(tensor).tolist(), element)


@pytest.mark.parametrize("moved", [True, False])
def test_elements_are_the_same(moved: bool) -> None:
    for function in MOVED if moved else LEFT:
        usual = tf.data.Dataset.range(6).map(function)
        with efficient_maps(), functions_on_one_device():
            ours = tf.data.Dataset.range(6).map(function)
        assert ours.element_spec == usual.element_spec
        assert ours.cardinality() == usual.cardinality()
        assert [plain(e) for e in ours] == [plain(e) for e in usual]
        assert [plain(e) for e in ours.skip(2).take(2)] == [plain(e) for e in usual][2:4]
        assert maps_in_pool(ours) == [not moved]


def test_parallel_synchronous_and_other_maps_are_unchanged() -> None:
    with efficient_maps():
        parallel = tf.data.Dataset.range(6).map(several, num_parallel_calls=2)
        synchronous = tf.data.Dataset.range(6).map(several, synchronous=True)
    assert maps_in_pool(parallel) == maps_in_pool(synchronous) == [True]
    assert maps_in_pool(tf.data.Dataset.range(6).map(several)) == [True]


def test_each_of_several_maps_is_handled_separately() -> None:
    with efficient_maps():
        dataset = tf.data.Dataset.range(6).map(lambda x: x + 1).map(branches).batch(2)
        dataset = dataset.map(lambda x: x * 2).prefetch(1)
    assert maps_in_pool(dataset) == [False, True, False]
    assert np.concatenate(list(dataset.as_numpy_iterator())).tolist() == [0, 8, 4, 16, 8, 24]


def test_functions_are_of_one_device_if_there_is_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def dataset() -> tf.data.Dataset:
        return tf.data.Dataset.range(6).filter(lambda x: x > 1).map(several)

    with functions_on_one_device():
        marked = dataset()
    assert functions_of_one_device(marked) == [True, True]
    assert functions_of_one_device(dataset()) == [False, False]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: ["CPU:0", "GPU:0"])
    with functions_on_one_device():
        assert functions_of_one_device(dataset()) == [False, False]
