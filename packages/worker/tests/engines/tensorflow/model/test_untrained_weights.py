"""Weights that training does not change are told before it begins."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.model.untrained_weights import (
    warn_of_unconnected,
    warn_of_untracked,
)


class Scale(keras.layers.Layer):
    """Keeps one weight as Keras does not know it, and others as it does."""

    def build(self, shape: Any) -> None:
        self.own = tf.Variable(tf.ones((4,)))
        self.fixed = tf.Variable(2.0, trainable=False)
        self.known = self.add_weight(shape=(4,), name="known")

    def call(self, x: Any) -> Any:
        return x * self.own * self.known + self.fixed


def test_a_variable_that_keras_does_not_know() -> None:
    model = keras.Sequential([keras.Input((4,)), Scale(), keras.layers.Dense(3)])
    (warning,) = warn_of_untracked(model)
    assert "own of the layer scale is a tf.Variable" in warning
    assert "self.own = self.add_weight" in warning


@pytest.mark.parametrize("rounds", [False, True])
def test_weights_behind_an_operation_without_gradients(rounds: bool) -> None:
    first, last = keras.layers.Dense(3, name="first"), keras.layers.Dense(1)
    x = first(tf.ones((2, 4)))
    last(x)
    variables = [*first.trainable_variables, *last.trainable_variables]
    with tf.GradientTape() as tape:
        x = first(tf.ones((2, 4)))
        loss = tf.reduce_sum(last(tf.round(x) if rounds else x))
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    found = warn_of_unconnected(variables, gradients)
    assert [("first/kernel, first/bias" in text) for text in found] == [True] * rounds
