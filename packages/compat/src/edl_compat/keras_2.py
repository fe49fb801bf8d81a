"""Models, optimizers and metrics of Keras 2: of ``tf_keras``, and of the one in TensorFlow."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import track_variable


class Keras2Model(keras.layers.Layer):
    """A model of Keras 2 as a layer of Keras 3; both have the same variables.

    Args:
        model: a built model.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(name=model.name)
        self.wrapped = model
        for number, weight in enumerate(model.weights):
            # Keras 2 numbers the layers of a process; a variable has the same name in each worker.
            name = weight.name.partition(":")[0].rpartition("/")[2]
            variable = keras.Variable(
                weight,
                trainable=weight.trainable,
                dtype=weight.dtype.name,
                name=f"{number}_{name}",
            )
            track_variable(self, variable)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        outputs = self.wrapped(inputs, training=bool(training))
        for loss in self.wrapped.losses:
            self.add_loss(loss)
        return outputs

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError("it is of Keras 2, and can be saved if it is made of keras")


def convert_to_keras_3(value: Any) -> Any:
    """Convert a model, optimizer or metric of Keras 2 to Keras 3; return anything else as it is.

    Raises:
        ValueError: a model has no inputs yet, or no weights.
    """
    kinds = {base.__name__ for base in type(value).__mro__}
    if "Model" in kinds:
        return _model(value)
    if kinds & {"Optimizer", "OptimizerV2"}:
        return _of_config(value, keras.optimizers)
    return _of_config(value, keras.metrics) if "Metric" in kinds else value


def _model(model: Any) -> keras.Model:
    if not getattr(model, "inputs", None):
        raise ValueError(
            f"edl cannot use {type(model).__name__}, a model of Keras 2 without inputs: write a "
            "functional model, or a subclass of keras.Model of Keras 3"
        )
    if not model.weights:  # layers of Keras 3 in a model of Keras 2 are no parts of it
        raise ValueError(
            f"{type(model).__name__}, a model of Keras 2, has no weights: its layers are not of "
            "Keras 2, or have none"
        )
    inputs = [
        keras.Input(tuple(tensor.shape[1:]), dtype=tensor.dtype.name, name=tensor.name)
        for tensor in model.inputs
    ]
    packed = tf.nest.pack_sequence_as(model.input, inputs)
    return keras.Model(packed, Keras2Model(model)(packed), name=model.name)


def _of_config(value: Any, module: Any) -> Any:
    """Return the object of Keras 3 with the same name and the same options."""
    name = type(value).__name__
    kind = getattr(module, name, None)
    if kind is None:
        return value  # which is refused as any other object
    config = value.get_config()
    rate = config.get("learning_rate")
    if isinstance(rate, dict):
        config["learning_rate"] = keras.optimizers.schedules.deserialize(
            {"class_name": rate["class_name"], "config": _drop_none(rate["config"])}
        )
    elif (decay := config.get("decay")) and name != "Nadam":  # Nadam means its momentum by it
        config["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(
            _plain(rate), decay_steps=1, decay_rate=_plain(decay)
        )
    known = inspect.signature(kind).parameters
    return kind(**{option: _plain(given) for option, given in config.items() if option in known})


def _drop_none(config: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the options of a schedule that are None, which Keras 3 leaves out."""
    return {option: _plain(value) for option, value in config.items() if value is not None}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
