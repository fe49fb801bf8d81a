"""Small Keras models, their loss and their minibatches, for tests of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.core.batch import Batch

SIZE = 16


class StubModelFile:
    """The part of a model file that a trainer uses."""

    def __init__(self, model: keras.Model, loss: Callable[[Any, Any], Any]) -> None:
        self.model = model
        self._loss = loss

    def call(self, features: Any, training: bool) -> Any:
        return self.model(features, training=training)

    custom_train_step = None
    optimizer = keras.optimizers.SGD(0.1)

    def compute_loss(self, outputs: Any, labels: Any, weights: Any = None) -> Any:
        return self._loss(outputs, labels)

    def training_weights(self, labels: Any, weights: Any) -> Any:
        return weights


def mean_square(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.square(outputs - tf.cast(labels, outputs.dtype)))


def regression(*layers: keras.layers.Layer, size: int = 3) -> keras.Model:
    return keras.Sequential([keras.Input((size,)), *layers, keras.layers.Dense(1)])


def batch_of(size: int = SIZE, width: int = 3, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    features = tf.constant(random.normal(size=(size, width)).astype(np.float32))
    return Batch(features, tf.constant(random.normal(size=(size, 1)).astype(np.float32)), size)
