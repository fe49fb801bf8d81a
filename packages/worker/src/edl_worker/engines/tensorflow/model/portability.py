"""What hinders Keras from loading the ``model.keras`` of a trained model without edl."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Any

import keras

from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.trained_model import directory

_MAX_PARAMETERS = 50_000_000
"""Of a model that is made a second time."""
_MAX_CHARACTERS = 300
_OWN = (
    ". A class of your own passes **kwargs of __init__ on, and its get_config returns all other "
    "arguments, too"
)


def describe_limits(model: keras.Model, *, thorough: bool) -> Iterator[str]:
    """Yield why Keras cannot load the model's file, or only with more than its name.

    A class of the model file that has to be given as ``custom_objects`` is no reason: people who
    write such classes know that.

    Args:
        thorough: load its configuration, too, which takes as long as making the model.
    """
    operations = [each for each in _operations(model) if _is_of_edl(each)]
    if operations:
        yield (
            f"Keras cannot load the {directory.KERAS} of this model without edl, because functions "
            "of TensorFlow get the outputs of layers: "
            + "; ".join(dict.fromkeys(map(_say_operation, operations)))
        )
    lambdas = [each for each in nested_layers(model) if _has_lambda(each)]
    for layer in lambdas:
        names = ", ".join(_find_names(layer.function))
        yield (
            f"{_place_of_code(layer.function)}: Keras loads the {directory.KERAS} of this model "
            "only with safe_mode=False"
            + (f", and then without {names}" if names else "")
            + f": the layer {layer.name} has a lambda. Write a class of layers with a call method, "
            "decorated with @keras.saving.register_keras_serializable()"
        )
    if thorough and not operations and not lambdas and model.count_params() <= _MAX_PARAMETERS:
        yield from _try_to_load(model)


def _operations(model: keras.Model) -> Iterator[Any]:
    for each in (model, *nested_layers(model)):
        yield from getattr(each, "operations", ())


def _is_of_edl(operation: Any) -> bool:
    """Return whether it stands for a function of TensorFlow, and is no layer of edl's own."""
    return type(operation).__module__.startswith("edl_compat.") and hasattr(operation, "operation")


def _say_operation(operation: Any) -> str:
    """Return an operation and what to write instead."""
    name = operation.operation
    same = name.rpartition(".")[2].removeprefix("reduce_")
    better = f"keras.ops.{same}" if hasattr(keras.ops, same) else "a function of keras.ops"
    place = f" ({operation.place})" if getattr(operation, "place", "") else ""
    return f"write {better} instead of tf.{name}{place}"


def _has_lambda(layer: keras.layers.Layer) -> bool:
    function = getattr(layer, "function", None)
    is_lambda = isinstance(function, types.LambdaType) and function.__name__ == "<lambda>"
    return isinstance(layer, keras.layers.Lambda) and is_lambda


def _place_of_code(function: Any) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def _find_names(function: Any) -> list[str]:
    """Return the names of the module that a function uses, and that its code alone lacks."""
    return [name for name in function.__code__.co_names if name in function.__globals__]


def _try_to_load(model: keras.Model) -> Iterator[str]:
    # A class of the model file may have the name of one of Keras, which it has inside.
    classes = {type(each) for each in (model, *nested_layers(model))}
    own = {each.__name__: each for each in classes if not each.__module__.startswith("keras.")}
    try:
        config = keras.saving.serialize_keras_object(model)
    except Exception:  # which is told otherwise: there is no such file
        return
    try:
        with keras.saving.custom_object_scope(own):
            keras.saving.deserialize_keras_object(config)
    except Exception as error:  # of constructors of the user
        text = re.split(r"encountered(?: during deserialization)?: ", str(error))[-1]
        text = re.split(r"\. |, config=", " ".join(text.split()))[0].rstrip(".")[:_MAX_CHARACTERS]
        yield f"Keras cannot load the {directory.KERAS} of this model: {text}{_OWN if own else ''}"
