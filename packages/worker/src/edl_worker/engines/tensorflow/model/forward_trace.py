"""Traces the forward pass of a model, and says which features or labels do not fit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.internals import consumers
from edl_worker.engines.tensorflow.model.description import ModelFileDescription
from edl_worker.engines.tensorflow.model.feature_mapping import TypeMismatch
from edl_worker.model_file.errors import trial_error

Call = Callable[[Any, bool], Any]
"""Returns a model's outputs of (features, training)."""


def trace_forward(description: ModelFileDescription, call: Call, batch: Batch) -> Any:
    """Create the model's variables with their initial values.

    Returns:
        The specifications (shape and dtype) of the outputs.

    Raises:
        EdlError: the model raised, or returned nothing.
    """
    mapper = description.feature_mapper
    failures: list[Exception] = []
    for layout in mapper.possible_layouts(batch.features):
        mapper.use(layout)
        try:
            # Traced and not run: a forward pass would change the statistics of layers that
            # are called with training=True.
            outputs = _trace(call, batch.features).structured_outputs
            break
        except TypeMismatch:
            raise
        except EdlError as error:
            if (swapped := _order_error(description, call, batch)) is not None:
                raise swapped from error
            raise
        except Exception as error:
            failures.append(error)
    else:
        raise _order_error(description, call, batch) or trial_error(
            failures[0],
            description.zoo_root,
            action=f"the model {description.model.name} raised when called with a minibatch",
            place=description.place,
        ) from failures[0]
    _check_ids(description, batch)
    if any(each is None for each in tf.nest.flatten(outputs)):
        raise description.contract_error(
            f"{type(description.model).__name__}.call returned None, not the outputs",
            "End it with return and what the last layer gives.",
        )
    return outputs


def _check_ids(description: ModelFileDescription, batch: Batch) -> None:
    """Check that an embedding gets whole numbers: Keras cuts off what comes after the point.

    Raises:
        EdlError: SHAPE_MISMATCH, with a value.
    """
    for name, value, model_input in description.feature_mapper.pair(batch.features):
        layers = [it for it in consumers(model_input) if isinstance(it, keras.layers.Embedding)]
        if not layers or not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            continue
        numbers = value.numpy()
        fractions = numbers[np.mod(numbers, 1) != 0]
        if fractions.size:
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the embedding {layers[0].name} takes the numbers of rows, and the feature {name} "
                f"has {fractions[0]:g}, of which it would use {int(fractions[0])}",
                where=description.place,
                remedy="Give it ids, such as those of a StringLookup or Discretization; numbers "
                "that measure something go to a Dense layer.",
            )


def _trace(call: Call, features: Any) -> Any:
    traced = tf.function(lambda features: call(features, True), autograph=False)
    return traced.get_concrete_function(specs(features))


def _order_error(description: ModelFileDescription, call: Call, batch: Batch) -> EdlError | None:
    """Return the error for labels that the model takes, where it does not take the features."""
    # Other models than functional ones take almost anything, and would be built of it.
    is_functional = bool(getattr(description.model, "inputs", None))
    if batch.labels is None or not is_functional:
        return None
    if not succeeds(lambda labels: _trace(call, labels), batch.labels):
        return None
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        "the model takes what the input function yields as labels, and not the features",
        where=description.input_pipeline.place,
        remedy="Yield the features first: return features, labels.",
    )


def succeeds(function: Callable[[Any], object], argument: Any) -> bool:
    """Return whether a function takes an argument without an exception."""
    try:
        function(argument)
    except Exception:
        return False
    return True


def specs(nest: Any) -> Any:
    """Return the specifications of tensors, for tracing; None for None."""
    return None if nest is None else tf.nest.map_structure(tf.type_spec_from_value, nest)
