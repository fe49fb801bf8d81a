"""The layers of ``elasticdl_preprocessing``, for dense, sparse and ragged tensors."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from example_data import example
from plain_loop import train
from zoo_folder import ZooFolder

from edl_compat import preprocessing as layers
from edl_compat import statistics


@pytest.mark.parametrize(
    ("layer", "inputs", "expected"),
    [
        (layers.Discretization(bins=[0.0, 1.0, 2.0]), [[-1.0], [0.0], [1.5], [9.0]], [0, 1, 2, 3]),
        (layers.Discretization(bins=[3]), [[1], [3]], [0, 1]),
        (layers.Hashing(num_bins=3), [["A"], ["B"], ["C"], ["D"], ["E"]], [1, 0, 1, 1, 2]),
        (layers.IndexLookup(["A", "B", "C"]), [["A"], ["C"], ["D"], ["E"]], [0, 2, 3, 3]),
        (layers.LogRound(num_bins=16, base=2), [[1.2], [1.6], [0.2], [3.1], [100.0]],
         [0, 1, 0, 2, 7]),
        (layers.Normalizer(subtractor=1.0, divisor=2.0), [[3.0], [5.0]], [1.0, 2.0]),
        (layers.Normalizer(subtractor=1.0, divisor=2.0), [[3], [5]], [1.0, 2.0]),
        (layers.RoundIdentity(num_buckets=5), [[1.2], [1.6], [4.9], [-3.0]], [1, 2, 0, 0]),
        (layers.ToNumber(tf.float32, default_value=-1.0), [["2.5"], [""]], [2.5, -1.0]),
        (layers.ToNumber("int64", default_value=0), [[2.7]], [2]),
    ],
)  # fmt: skip
def test_what_a_layer_makes_of_values(layer: Any, inputs: Any, expected: list[float]) -> None:
    dense = tf.constant(inputs)
    assert layer(dense).numpy().reshape(-1).tolist() == expected
    ragged = tf.RaggedTensor.from_row_lengths(dense[:, 0], [1, len(inputs) - 1])
    assert layer(ragged).flat_values.numpy().tolist() == expected
    places = tf.constant([[i, 0] for i in range(len(inputs))], tf.int64)
    sparse = tf.SparseTensor(places, dense[:, 0], [len(inputs), 1])
    assert layer(sparse).values.numpy().tolist() == expected
    restored = type(layer).from_config(layer.get_config())
    assert restored(dense).numpy().reshape(-1).tolist() == expected


def test_concatenation_with_offsets() -> None:
    layer = layers.ConcatenateWithOffset(offsets=[0, 10], axis=1)
    ones, twos = tf.ones((2, 1), tf.int64), 2 * tf.ones((2, 1), tf.int64)
    assert layer([ones, twos]).numpy().tolist() == [[1, 12], [1, 12]]
    sparse = layer([tf.sparse.from_dense(ones), tf.sparse.from_dense(twos)])
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [[1, 12], [1, 12]]
    with pytest.raises(ValueError, match="2 offsets for 1 tensors"):
        layer([ones])


def test_cells_that_are_left_out() -> None:
    words = tf.constant([["a", ""], ["b", "c"]])
    assert layers.ToSparse()(words).indices.numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    numbers = tf.constant([[1], [-1], [4]], tf.int64)
    assert layers.ToRagged()(numbers).to_list() == [[1], [], [4]]
    assert layers.ToSparse(ignore_value=4)(numbers).values.numpy().tolist() == [1, -1]


@pytest.mark.parametrize(("combiner", "factor"), [("mean", 1.0), ("sum", 2.0), ("sqrtn", 2**0.5)])
def test_sparse_embedding(combiner: str, factor: float) -> None:
    layer = layers.SparseEmbedding(5, 3, embeddings_initializer="ones", combiner=combiner)
    ids = tf.sparse.from_dense([[1, 4, 0], [0, 0, 0]])
    np.testing.assert_allclose(layer(ids), [[factor] * 3, [0.0] * 3], rtol=1e-6)
    np.testing.assert_allclose(layer(tf.constant([[1, 4, 0], [0, 0, 0]])), layer(ids))


def test_statistics_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_age_boundaries", "30,10,30")
    monkeypatch.setenv("_age_avg", "31.5")
    assert statistics.get_bucket_boundaries("age", [1.0]) == [10.0, 30.0]
    assert statistics.get_avg("age", 0.0) == 31.5
    assert statistics.get_distinct_count("age", 7) == 7

    @statistics.declare_model_inputs("wide", "deep")
    class Model:
        pass

    assert Model._model_inputs == ["wide", "deep"]


SOURCE = """
from elasticdl_preprocessing.layers import (
    ConcatenateWithOffset, Hashing, Normalizer, SparseEmbedding, ToSparse)
from elasticdl_preprocessing.layers.discretization import Discretization

def custom_model():
    inputs = {"city": tf.keras.layers.Input(name="city", shape=(1,), dtype=tf.string),
              "age": tf.keras.layers.Input(name="age", shape=(1,), dtype=tf.float32)}
    city = Hashing(num_bins=5)(ToSparse()(inputs["city"]))
    age = Discretization(bins=[10.0, 50.0])(ToSparse()(inputs["age"]))
    group = ConcatenateWithOffset([0, 5])([city, age])
    rows = [SparseEmbedding(input_dim=8, output_dim=n)(group) for n in (1, 1)]
    deep = tf.reshape(rows, shape=(-1, 2))
    x = tf.concat([deep, Normalizer(subtractor=20.0, divisor=5.0)(inputs["age"])], 1)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))

def feed(dataset, mode, _):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "city": tf.io.FixedLenFeature((1,), tf.string),
            "age": tf.io.FixedLenFeature((1,), tf.float32)})
        return r, r["age"]
    return dataset.map(parse)

def loss(labels, predictions):
    return tf.reduce_mean(tf.abs(labels - predictions))

def optimizer():
    return tf.optimizers.SGD(0.01)
"""


def test_a_model_of_these_layers_trains(zoo: ZooFolder) -> None:
    zoo.write("mine.py", SOURCE)
    model_file = zoo.load("mine.custom_model")
    cities = [b"rome", b"paris", b""]
    records = [example(city=cities[i % 3], age=np.float32(4 * i)) for i in range(20)]
    rows = [layer for layer in model_file.model.layers if "embedding" in layer.name]
    before = [np.array(layer.get_weights()[0]) for layer in rows]
    assert np.isfinite(train(model_file, records, size=5)).all()
    after = [layer.get_weights()[0] for layer in rows]
    assert all((a != b).any() for a, b in zip(after, before, strict=True))
    assert isinstance(model_file.model, keras.Model)
