"""What Keras alone cannot load is told before training."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from edl_compat.keras_tensors import apply
from edl_worker.engines.tensorflow.model.portability import describe_limits


class Scale(keras.layers.Layer):
    """A layer that Keras can load."""

    def __init__(self, factor: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs: object) -> object:
        return inputs * self.factor


class Forgetful(Scale):
    """A layer that returns too little."""

    def get_config(self) -> dict[str, object]:
        return {"name": self.name}


class Dense(keras.layers.Layer):
    """A layer with the name of one of Keras, which it has inside."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.inside = keras.layers.Dense(1)

    def call(self, inputs: object) -> object:
        return self.inside(inputs)


class Columns(Scale):
    """A layer of edl's own, which stands for no function of TensorFlow."""


Columns.__module__ = "edl_compat.feature_columns"


def model_of(layer: object) -> keras.Model:
    inputs = keras.Input((2,))
    return keras.Model(inputs, layer(inputs))


def as_relu(tensor: object) -> object:
    return apply(tf.nn.relu, (tensor,), {})


def nest_relu(tensor: object) -> object:
    return model_of(as_relu)(tensor)


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (keras.layers.Dense(1), ""),
        (Scale(2.0), ""),
        (Dense(), ""),
        (Forgetful(2.0), "missing 1 required positional argument: 'factor'"),
        (as_relu, "write keras.ops.relu instead of tf.nn.relu"),
        (nest_relu, "keras.ops.relu"),
        (keras.layers.Lambda(lambda x: tf.abs(x) * 2, output_shape=(2,)), "and then without tf"),
        (keras.layers.Lambda(keras.ops.abs), "Could not locate function"),
    ],
)
def test_limits(layer: object, told: str) -> None:
    found = " ".join(describe_limits(model_of(layer), thorough=True))
    assert told in found
    assert bool(told) == bool(found)


def test_a_layer_of_edl_is_no_function_of_tensorflow() -> None:
    list(describe_limits(model_of(Columns(2.0)), thorough=False))
