"""``DenseFeatures`` gives what TensorFlow's own feature columns give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from example_data import example
from plain_loop import train
from tensorflow.python.feature_column import feature_column_v2
from zoo_folder import ZooFolder

from edl_compat.columns import concatenated_categorical_column, embedding_column
from edl_compat.feature_columns import DenseFeatures

fc = tf.feature_column
FEATURES = {
    "age": tf.constant([[3], [17], [40]]),
    "pair": tf.constant([[1.0, 2.0], [0.5, 70.0], [30.0, -1.0]]),
    "city": tf.constant(["paris", "", "rome"]),
    "tags": tf.constant([["a", "b"], ["b", ""], ["zzz", "a"]]),
    "level": tf.constant([[0, 2], [-1, 9], [1, 1]], tf.int64),
}


class Weights(feature_column_v2.StateManager):
    """Gives TensorFlow's columns the weights of a layer."""

    def __init__(self, layer: DenseFeatures) -> None:
        self._tables = [lookup.weights[0] for lookup in layer.lookups]
        self._made: dict[str, Any] = {}
        self._resources: dict[str, Any] = {}

    def create_variable(self, column: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        self._made[column.name] = self._tables.pop(0).value
        return self._made[column.name]

    def get_variable(self, column: Any, name: str) -> Any:
        return self._made[column.name]

    def add_resource(self, column: Any, name: str, resource: Any) -> None:
        self._resources[name] = resource

    def has_resource(self, column: Any, name: str) -> bool:
        return name in self._resources

    def get_resource(self, column: Any, name: str) -> Any:
        return self._resources[name]


def of_tensorflow(columns: list[Any], layer: DenseFeatures) -> np.ndarray:
    weights = Weights(layer)
    cache = feature_column_v2.FeatureTransformationCache(FEATURES)
    parts = []
    for column in sorted(columns, key=lambda c: c.name):
        column.create_state(weights)
        parts.append(tf.reshape(column.get_dense_tensor(cache, weights), (3, -1)))
    return tf.concat(parts, -1).numpy()


def age() -> Any:
    return fc.bucketized_column(fc.numeric_column("age"), [5, 20, 30])


def city() -> Any:
    return fc.categorical_column_with_hash_bucket("city", 7)


def tags(others: int = 0) -> Any:
    return fc.categorical_column_with_vocabulary_list("tags", ["a", "b"], num_oov_buckets=others)


def level() -> Any:
    return fc.categorical_column_with_identity("level", 3, default_value=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [fc.numeric_column("pair", shape=(2,)), fc.numeric_column("age")],
        lambda: [fc.numeric_column("age", normalizer_fn=lambda x: x / 10)],
        lambda: [age(), fc.bucketized_column(fc.numeric_column("pair", (2,)), [0.0, 2.0])],
        lambda: [fc.indicator_column(city()), fc.indicator_column(tags())],
        lambda: [fc.indicator_column(tags(2)), fc.indicator_column(level())],
        lambda: [fc.indicator_column(fc.crossed_column(["city", "tags"], 11))],
        lambda: [fc.indicator_column(fc.crossed_column([age(), tags(1)], 11))],
        lambda: [fc.embedding_column(city(), 3), fc.embedding_column(tags(1), 2, "sqrtn")],
        lambda: [fc.embedding_column(tags(), 2, combiner="sum"), fc.embedding_column(age(), 2)],
        lambda: [fc.embedding_column(level(), 2, max_norm=0.5), fc.numeric_column("age")],
    ],
)
def test_every_kind_of_column(make: Callable[[], list[Any]], tmp_path: Path) -> None:
    columns = make()
    layer = DenseFeatures(columns)
    found = layer(FEATURES)
    np.testing.assert_allclose(found, of_tensorflow(columns, layer), rtol=1e-5, atol=1e-6)
    assert found.shape[1] == layer.compute_output_spec(FEATURES).shape[1]
    if getattr(columns[0], "normalizer_fn", None) is None:
        restored = DenseFeatures.from_config(layer.get_config())
        restored(FEATURES)
        restored.set_weights(layer.get_weights())
        np.testing.assert_array_equal(restored(FEATURES), found)


def test_sparse_features_count_as_dense_ones() -> None:
    sparse = tf.sparse.from_dense([["a", "b"], ["b", ""], ["zzz", "a"]])
    layer = DenseFeatures([fc.indicator_column(tags(2))])
    np.testing.assert_array_equal(layer({"tags": sparse}), layer(FEATURES))


def test_concatenated_columns_do_not_share_ids() -> None:
    both = concatenated_categorical_column([age(), tags()])
    assert both.num_buckets == 6
    found = DenseFeatures([fc.indicator_column(both)])(FEATURES)
    assert found.numpy().tolist() == [[1, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (city, "HashedCategoricalColumn in DenseFeatures: wrap a categorical column"),
        (lambda: fc.embedding_column(fc.weighted_categorical_column(city(), "age"), 2), "Weighted"),
    ],
)
def test_other_columns_are_refused(column: Callable[[], Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        DenseFeatures([column()])


COLUMNS = """
from elasticdl.python.elasticdl.feature_column import feature_column

def columns():
    city = tf.feature_column.categorical_column_with_hash_bucket("city", hash_bucket_size=16)
    return [
        tf.feature_column.numeric_column("hours-per-week"),
        feature_column.embedding_column(city, dimension=4),
    ]

def loss(labels, predictions):
    return tf.keras.losses.binary_crossentropy(tf.expand_dims(labels, axis=1), predictions)

def optimizer():
    return tf.keras.optimizers.Adam()

def feed(dataset, mode, _):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "city": tf.io.FixedLenFeature([], tf.string),
            "hours-per-week": tf.io.FixedLenFeature([], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64)})
        label = r.pop("label")
        return r, label
    return dataset.map(parse)
"""
FUNCTIONAL = """
def custom_model():
    inputs = {"hours-per-week": tf.keras.Input((1,), name="hours-per-week", dtype=tf.float32),
              "city": tf.keras.Input((1,), name="city", dtype=tf.string)}
    x = tf.keras.layers.DenseFeatures(columns())(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid")(x))
"""
SEQUENTIAL = """
def custom_model():
    return tf.keras.Sequential([
        tf.keras.layers.DenseFeatures(feature_columns=columns()),
        tf.keras.layers.Dense(1, activation="sigmoid")])
"""
SUBCLASS = """
class CustomModel(tf.keras.Model):
    def __init__(self, feature_columns):
        super(CustomModel, self).__init__(name="custom_model")
        self.dense_features = tf.keras.layers.DenseFeatures(feature_columns)
        self.dense = tf.keras.layers.Dense(1, activation="sigmoid")
    def call(self, inputs, training=False):
        return self.dense(self.dense_features(inputs))

def custom_model():
    return CustomModel(columns())
"""


@pytest.mark.parametrize("model", [FUNCTIONAL, SEQUENTIAL, SUBCLASS])
def test_models_with_dense_features_train(zoo: ZooFolder, model: str) -> None:
    zoo.write("mine.py", COLUMNS + model)
    model_file = zoo.load("mine.custom_model")
    records = [
        example(
            **{"city": [b"rome", b"paris"][i % 2], "hours-per-week": np.float32(i / 20)},
            label=np.int64(i % 2),
        )
        for i in range(20)
    ]
    losses = train(model_file, records, size=5, epochs=2)
    assert np.isfinite(losses).all()
    names = [w.path for w in model_file.model.trainable_variables]
    assert any("embedding" in name for name in names), "the rows of the column are trained"
    assert isinstance(embedding_column(city(), 2).dimension, int)
    assert keras.backend.backend() == "tensorflow"
