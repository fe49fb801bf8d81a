"""Operations of TensorFlow on the symbolic tensors of Keras 3, which TensorFlow itself refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import public_name
from edl_worker.model_file.zoo.module_loaders import find_running_line


@keras.saving.register_keras_serializable(package="elasticdl")
class TensorFlowOperation(keras.Operation):
    """One operation of TensorFlow as a node of a functional model.

    Args:
        operation: its public name without ``tf.``: ``math.reduce_sum``.
        function: the operation, if it is at hand.

    Attributes:
        place: file and line of the model file that calls the operation; empty if not known.
    """

    def __init__(
        self, operation: str, name: str | None = None, function: Callable[..., Any] | None = None
    ) -> None:
        super().__init__(name=name)
        self.operation = operation
        self.place = ""
        self._function = function or functools.reduce(getattr, operation.split("."), tf)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().compute_output_spec(*args, **kwargs)
        except (TypeError, ValueError):
            # Keras takes the product of a number and a dense tensor for a sparse tensor.
            args, kwargs = keras.tree.map_structure(_dense, (args, kwargs))
            return super().compute_output_spec(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {"operation": self.operation, "name": self.name}


def _dense(value: Any) -> Any:
    if isinstance(value, keras.KerasTensor) and value.sparse:
        return keras.KerasTensor(value.shape, value.dtype)
    return value


def apply(operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the symbolic result of an operation of TensorFlow."""
    made = TensorFlowOperation(public_name(operation), function=operation)
    if (line := find_running_line()) is not None:
        made.place = "{}:{}".format(*line)
    return made(*args, **kwargs)
