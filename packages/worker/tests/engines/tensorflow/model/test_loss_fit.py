"""Losses of Keras that do not fit labels or outputs are named, with the loss that does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from trial_jobs import load, write_rows
from zoo_folder import ZooFolder

from edl_proto.errors import ErrorCode
from edl_worker.engines.tensorflow.model.description import LossFunction
from edl_worker.engines.tensorflow.model.loss_fit import find_misfit
from edl_worker.model_file.errors import ContractErrors

SPARSE = "sparse_categorical_crossentropy"
CATEGORICAL = "categorical_crossentropy"
BINARY = "binary_crossentropy"
NUMBERS = [0, 1, 2, 1]
ONE_HOT = np.eye(3)[NUMBERS]
BINARY_LABELS = [[0], [1], [1], [0]]
PRICES = [106.3, 73.2, 88.0, 120.5]


def find(loss: Any, labels: Any, units: int, activation: str | None) -> tuple[Any, tuple[str, ...]]:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])
    function = LossFunction(lambda **_: 0, "mean", "loss", "m.py:3, loss", {"loss": loss})
    return find_misfit(function, model, tf.constant(labels), tf.TensorSpec((4, units)))


@pytest.mark.parametrize(
    ("loss", "labels", "units", "activation", "what", "remedy"),
    [
        (SPARSE, ONE_HOT, 3, "softmax", "labels (n, 3), outputs (n, 3)", "CategoricalCross"),
        (SPARSE, NUMBERS, 2, "softmax", "labels are 0 to 2", "at least 3"),
        (SPARSE, [1, 2, 3, 3], 3, "softmax", "labels are 1 to 3", "label - 1"),
        (SPARSE, [0, -1, 1, 1], 3, "softmax", "labels are -1 to 1", "ignore_class=-1"),
        (SPARSE, [0.5, 1, 2, 1], 3, "softmax", "a label is 0.5", '"mse"'),
        (SPARSE, BINARY_LABELS, 1, "sigmoid", "a single class", "BinaryCrossentropy()"),
        (SPARSE, NUMBERS, 3, None, "no activation", "from_logits=True"),
        (CATEGORICAL, NUMBERS, 3, "softmax", "labels (n,), outputs (n, 3)", "SparseCategorical"),
        (CATEGORICAL, ONE_HOT, 4, "softmax", "3 labels per example and 4 outputs", "3 units"),
        (CATEGORICAL, BINARY_LABELS, 1, "sigmoid", "always 0", "BinaryCrossentropy()"),
        (BINARY, NUMBERS, 2, "softmax", "labels (n,), outputs (n, 2)", "SparseCategorical"),
        (BINARY, BINARY_LABELS, 1, "softmax", "always 1", '"sigmoid"'),
        (BINARY, BINARY_LABELS, 1, "relu", "activation relu", '"sigmoid"'),
        (BINARY, BINARY_LABELS, 1, "tanh", "activation tanh", '"sigmoid"'),
        ("mse", BINARY_LABELS, 1, "softmax", "always 1", "no activation"),
        (BINARY, [[0], [2], [1], [1]], 1, "sigmoid", "a label is 2", "SparseCategorical"),
        (BINARY, [[0], [100], [100], [0]], 1, "sigmoid", "a label is 100", "label / 100"),
        (BINARY, [[-1], [1], [1], [1]], 1, "sigmoid", "a label is -1", '"hinge"'),
        ("mse", NUMBERS, 3, None, "labels (n,), outputs (n, 3)", "SparseCategorical"),
        ("categorical_hinge", NUMBERS, 3, None, "labels (n,), outputs (n, 3)", "SparseCategorical"),
        (
            "mse",
            PRICES,
            1,
            "sigmoid",
            "of sigmoid are 0 to 1, and the labels are 73",
            "no activation",
        ),
        ("mae", PRICES, 1, "tanh", "of tanh are -1 to 1", "labels from -1 to 1"),
        ("mse", [-5.0, -3.0, -2.0, 1.0], 1, "relu", "0 and more", "labels from 0 on"),
        (
            keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=10),
            *(ONE_HOT, 3, None, "label_smoothing is 10", "label_smoothing=0.1."),
        ),
        ("kl_divergence", ONE_HOT, 3, None, "takes probabilities", 'activation="softmax".'),
        ("kl_divergence", [[1, 2, 1]] * 4, 3, "softmax", "a label is 2", "reduce_sum"),
        ("poisson", NUMBERS, 1, None, "the last layer has no activation", '"softplus"'),
        ("poisson", [-1, 0, 1, 2], 1, "exponential", "a label is -1", '"mse"'),
        (
            *(keras.losses.SparseCategoricalCrossentropy(from_logits=True), ONE_HOT, 3, None),
            *("one number per class", "CategoricalCrossentropy(from_logits=True)"),
        ),
    ],
)
def test_a_loss_that_cannot_be_meant(
    loss: Any, labels: Any, units: int, activation: str | None, what: str, remedy: str
) -> None:
    error, _ = find(loss, labels, units, activation)
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert what in error.what
    assert "labels (n" in error.what
    assert remedy in error.remedy
    assert error.where == "m.py:3, loss"


@pytest.mark.parametrize(
    ("loss", "labels", "units", "activation"),
    [
        (SPARSE, NUMBERS, 3, "softmax"),
        (SPARSE, [[n] for n in NUMBERS], 3, "softmax"),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), NUMBERS, 3, None),
        (
            keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
            *([0, -1, 2, 1], 3, None),
        ),
        (CATEGORICAL, ONE_HOT, 3, "softmax"),
        (BINARY, BINARY_LABELS, 1, "sigmoid"),
        (BINARY, [0.0, 1.0, 0.2, 0.0], 1, "sigmoid"),
        (BINARY, ONE_HOT, 3, "sigmoid"),
        (BINARY, BINARY_LABELS, 1, "exponential"),
        ("mse", [0.5, 1.5, 0.0, 1.0], 1, None),
        ("mse", ONE_HOT, 3, "softmax"),
        ("categorical_hinge", ONE_HOT, 3, None),
        ("hinge", [[-1], [1], [1], [1]], 1, None),
        (lambda y_true, y_pred: 0.0, ONE_HOT, 7, None),
        ("mse", [0.0, 0.2, 1.0, 1.005], 1, "sigmoid"),
        ("mse", PRICES, 1, "relu"),
        ("mape", PRICES, 1, None),
        ("poisson", NUMBERS, 1, "exponential"),
        ("kl_divergence", ONE_HOT, 3, "softmax"),
    ],
)
def test_losses_that_fit(loss: Any, labels: Any, units: int, activation: str | None) -> None:
    assert find(loss, labels, units, activation) == (None, ())


@pytest.mark.parametrize(
    ("loss", "labels", "activation", "text"),
    [
        (BINARY, ONE_HOT, "softmax", "categorical_crossentropy fits"),
        (CATEGORICAL, ONE_HOT, "sigmoid", 'activation="softmax"'),
        (CATEGORICAL, [[1, 1, 0]] * 4, "sigmoid", "binary_crossentropy fits"),
        (CATEGORICAL, [[1, 1, 0]] * 4, "softmax", "binary_crossentropy fits"),
        (
            keras.losses.CategoricalCrossentropy(from_logits=True),
            *(ONE_HOT, "softmax", "leave from_logits or the activation out"),
        ),
        ("mse", [[0.1, 0.2, 7.0]] * 4, "sigmoid", "the labels are 0.1 to 7, 33% of them beyond"),
        ("mape", [[0.0, 1.0, 2.0]] * 4, "linear", "a label is 0"),
        ("msle", [[-0.5, 1.0, 2.0]] * 4, "linear", "such as -0.5"),
    ],
)
def test_losses_that_train_though_they_were_hardly_meant(
    loss: Any, labels: Any, activation: str, text: str
) -> None:
    error, warnings = find(loss, labels, 3, activation)
    assert error is None
    assert text in warnings[0]


def test_losses_of_several_outputs_are_judged_each(tmp_path: Path, zoo: ZooFolder) -> None:
    source = """
import keras
import tensorflow as tf
x = keras.Input((2,), name="x")
a = keras.layers.Dense(1, name="a")(x)
b = keras.layers.Dense(3, activation="softmax", name="b")(x)
model = keras.Model(x, {"b": b, "a": a})
loss = {"a": "mse", "b": "categorical_crossentropy"}
optimizer = "sgd"
def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return r["x"], {"a": r["x"][:1], "b": tf.cast(r["x"][0], tf.int64)}
    return dataset.map(parse)
"""
    with pytest.raises(ContractErrors, match="categorical_crossentropy does not fit") as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), source)
    assert re.search(r"mine\.py:\d+, loss$", caught.value.where)


def test_a_loss_function_that_calls_a_loss_of_keras(tmp_path: Path, zoo: ZooFolder) -> None:
    source = """
import keras
import tensorflow as tf
x = keras.Input((2,), name="x")
model = keras.Model(x, keras.layers.Dense(3, activation="softmax")(x))
def loss(labels, predictions):
    return keras.losses.categorical_crossentropy(labels, predictions) * 2
optimizer = "sgd"
def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return r["x"], tf.cast(r["x"][0], tf.int64)
    return dataset.map(parse)
"""
    with pytest.raises(ContractErrors, match=r"labels \(n,\), outputs \(n, 3\)") as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), source)
    assert re.search(r"mine\.py:\d+, loss$", caught.value.where)
    assert "SparseCategoricalCrossentropy" in caught.value.remedy
