"""What is trained in benchmarks, as the peers have it: with Keras, and with TensorFlow alone.

The networks of TensorFlow alone are those of the model files, variable by variable. Keras 3 does
not know ParameterServerStrategy, so this is what runs there; and it is the plain loop next to which
a share is given. The update is plain gradient descent, sparse for rows.
"""

from __future__ import annotations

import glob
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

import recordio
from bench.measure import ROOT
from elasticdl import Mode

VOCABULARY = 1 << 21
"""Rows of the peers' tables: ids are taken modulo this. Ours have a row for each id."""


class Network(ABC):
    """Variables, and a step of training on them."""

    def __init__(self) -> None:
        self.variables: list[Any] = []

    def step(self, features: Any, labels: Any, rate: float) -> Any:
        """Compute a gradient, apply it, and return the loss."""
        with tf.GradientTape() as tape:
            loss = self.loss(features, labels)
        for variable, gradient in zip(
            self.variables, tape.gradient(loss, self.variables), strict=True
        ):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
            else:
                variable.assign_sub(rate * gradient)
        return loss

    @abstractmethod
    def loss(self, features: Any, labels: Any) -> Any:
        """The mean loss of a minibatch."""

    def _new(self, *shape: int, start: str = "glorot_uniform", trained: bool = True) -> Any:
        value = tf.keras.initializers.get(start)(shape)
        variable = tf.Variable(value, trainable=trained)
        if trained:
            self.variables.append(variable)
        return variable


class Mnist(Network):
    """``model_zoo/mnist/mnist_functional_api.py``."""

    def __init__(self) -> None:
        super().__init__()
        self._first = self._new(3, 3, 1, 32), self._new(32, start="zeros")
        self._second = self._new(3, 3, 32, 64), self._new(64, start="zeros")
        self._scale = self._new(64, start="ones"), self._new(64, start="zeros")
        self._mean = self._new(64, start="zeros", trained=False)
        self._variance = self._new(64, start="ones", trained=False)
        self._last = self._new(12 * 12 * 64, 10), self._new(10, start="zeros")

    def loss(self, features: Any, labels: Any) -> Any:
        x = tf.reshape(features["image"], (-1, 28, 28, 1))
        for kernel, bias in (self._first, self._second):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "VALID") + bias)
        mean, variance = tf.nn.moments(x, (0, 1, 2))
        self._mean.assign_sub(0.01 * (self._mean - mean))
        self._variance.assign_sub(0.01 * (self._variance - variance))
        x = tf.nn.batch_normalization(x, mean, variance, self._scale[1], self._scale[0], 1e-3)
        x = tf.nn.dropout(tf.nn.max_pool2d(x, 2, 2, "VALID"), 0.25)
        kernel, bias = self._last
        logits = tf.reshape(x, (-1, 12 * 12 * 64)) @ kernel + bias
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(labels, [-1]), logits)
        )


class Clicks(Network):
    """``bench/models/clicks.py``."""

    def __init__(self) -> None:
        super().__init__()
        file = _model_file("clicks")
        self._fields, self._dim = file.FIELDS, file.DIM
        self._rows = self._new(VOCABULARY, file.DIM, start="random_uniform")
        width, self._layers = file.FIELDS * file.DIM + file.NUMBERS, []
        for units in (*file.HIDDEN, 1):
            self._layers.append((self._new(width, units), self._new(units, start="zeros")))
            width = units

    def loss(self, features: Any, labels: Any) -> Any:
        # Each id once, as both ours and a careful user of the strategy would.
        unique, at = tf.unique(tf.reshape(features["ids"] % VOCABULARY, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(self._rows, unique), at)
        x = tf.concat([tf.reshape(rows, (-1, self._fields * self._dim)), features["numbers"]], 1)
        for number, (kernel, bias) in enumerate(self._layers):
            x = x @ kernel + bias
            if number < len(self._layers) - 1:
                x = tf.nn.relu(x)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, x))


class ClickFields(Network):
    """``bench/models/click_fields.py``."""

    def __init__(self) -> None:
        super().__init__()
        file = _model_file("click_fields")
        self._rows = [
            self._new(file.IDS, file.DIM, start="random_uniform") for _ in range(file.FIELDS)
        ]
        width, self._layers = file.FIELDS * file.DIM + file.NUMBERS, []
        for units in (*file.HIDDEN, 1):
            self._layers.append((self._new(width, units), self._new(units, start="zeros")))
            width = units

    def loss(self, features: Any, labels: Any) -> Any:
        fields = tf.unstack(features["ids"], len(self._rows), 1)
        rows = [tf.gather(table, ids) for table, ids in zip(self._rows, fields, strict=True)]
        x = tf.concat([*rows, features["numbers"]], 1)
        for number, (kernel, bias) in enumerate(self._layers):
            x = x @ kernel + bias
            if number < len(self._layers) - 1:
                x = tf.nn.relu(x)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, x))


@dataclass(frozen=True, slots=True)
class Subject:
    """A model of a benchmark.

    Attributes:
        file: the model file that ``edl train`` gets.
        network: the same with TensorFlow alone.
        model: the same with Keras alone.
        loss: for ``compile``.
        rate: of learning.
        parse: makes features and labels of many records, which is a peer's fastest input; None:
            peers have the input of the model file.
    """

    file: ModuleType
    network: Callable[[], Network]
    model: Callable[[], Any]
    loss: Callable[[], Any]
    rate: float
    parse: Callable[[Any], Any] | None = None

    def minibatches(self, folder: str, batch: int, *, repeated: bool = False) -> Any:
        """The minibatches of the TFRecord files of a folder."""
        files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord")
        dataset = tf.data.TFRecordDataset(files.repeat() if repeated else files)
        if self.parse is None:
            dataset = self.file.dataset_fn(dataset, Mode.TRAINING)
            dataset = dataset.batch(batch, drop_remainder=repeated)
        else:
            dataset = dataset.shuffle(4096).batch(batch, drop_remainder=repeated).map(self.parse)
        return dataset.prefetch(tf.data.AUTOTUNE)


def find_subject(name: str) -> Subject:
    file = _model_file(name)
    if name == "mnist":
        # The file's loss, as Keras has it: fit gives a plain function labels of float32.
        return Subject(
            file,
            Mnist,
            lambda: file.model,
            lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            0.1,
        )
    clicks = _model_file("clicks")
    if name == "click_fields":

        def parse(records: Any) -> Any:
            features, labels = clicks.parse(records)
            # Undo the numbering of fields: each has a table of its own here.
            return {**features, "ids": features["ids"] // 64 % file.IDS}, labels

        return Subject(file, ClickFields, file.model, _click_loss, file.LEARNING_RATE, parse)

    def with_keras() -> Any:
        embedding = tf.keras.layers.Embedding(VOCABULARY, file.DIM)
        return file.network(lambda ids: embedding(ids % VOCABULARY))

    return Subject(file, Clicks, with_keras, _click_loss, file.LEARNING_RATE, file.parse)


def _click_loss() -> Any:
    return tf.keras.losses.BinaryCrossentropy(from_logits=True)


def write_tfrecords(data: str, folder: str) -> int:
    """The training records of a folder once more, as TFRecord; returns how many there are."""
    records = 0
    for path in sorted(glob.glob(f"{data}/train/*.recordio")):
        with tf.io.TFRecordWriter(f"{folder}/{Path(path).stem}.tfrecord") as writer:
            for record in recordio.open_source(path).read(0, sys.maxsize):
                writer.write(record)
                records += 1
    return records


def _model_file(name: str) -> ModuleType:
    paths = {
        "mnist": "model_zoo/mnist/mnist_functional_api.py",
        "clicks": "bench/models/clicks.py",
        "click_fields": "bench/models/click_fields.py",
    }
    spec = importlib.util.spec_from_file_location(f"{name}_model", ROOT / paths[name])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
