"""Checks of a model's layers as a whole: whose they are, and what they are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.printable import one_line
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.engines.tensorflow.model.layer_states import LayerStates
from edl_worker.model_file import keras_2
from edl_worker.model_file.errors import type_with_article


def check_layers(model: keras.Model, states: LayerStates, place: str) -> None:
    """Check that logs can show the names of all layers, and that Keras 2 and 3 are not mixed.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    _check_names(model, states, place)
    _check_origin(model, place)


def _check_names(model: keras.Model, states: LayerStates, place: str) -> None:
    named = [(each.name, place) for each in (model, *nested_layers(model))]
    for name, where in (*named, *states.places()):
        if one_line(name) != name:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"the name of the layer {one_line(name)} has control characters",
                where=where or place,
                remedy="Give the layer a name of letters, digits and underscores: logs show it.",
            )


def _check_origin(model: keras.Model, place: str) -> None:
    """Check that layers of one Keras have none of the other, whose weights they do not see."""
    for wrapped in _wrapped_models(model):
        for layer in filter(_is_layer, wrapped.submodules or (wrapped,)):
            _check_parts(layer, 2, place)
        return
    for layer in (model, *nested_layers(model)):
        _check_parts(layer, 3, place)


def _check_parts(layer: Any, version: int, place: str) -> None:
    for part in keras_2.parts_of(vars(layer)):
        other = 2 if keras_2.package_of(type(part)) else 3
        if _is_layer(part) and other != version:
            kind = type_with_article(part) + ("" if other == 2 else " of Keras 3")
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"{layer.name} has {kind}, whose weights Keras {version} would neither train nor "
                "save",
                where=place,
                remedy=keras_2.REMEDY,
            )


def _is_layer(part: Any) -> bool:
    return hasattr(type(part), "trainable_weights")


def warn_of_keras_2(model: keras.Model, place: str) -> tuple[str, ...]:
    """Return a warning of a model of Keras 2, whose variables train as those of Keras 3."""
    packages = {keras_2.package_of(type(each)) for each in _wrapped_models(model)}
    return tuple(
        f"{place}: the model is one of {package} (Keras 2), of which edl trains the variables with "
        "Keras 3: import keras instead, and the trained model has all its forms"
        for package in sorted(packages)
        if package
    )


def _wrapped_models(model: keras.Model) -> Iterator[Any]:
    """Yield the models of Keras 2 that became layers; see ``CompatibilityShelf.to_keras_3``."""
    for layer in nested_layers(model):
        if (wrapped := getattr(layer, "wrapped", None)) is not None:
            yield wrapped
