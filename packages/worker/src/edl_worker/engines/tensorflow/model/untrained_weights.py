"""Warns of weights that training will not change, although they look as if it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import nested_layers

_SHOWN = 3


def warn_of_unconnected(variables: Sequence[Any], gradients: Sequence[Any]) -> tuple[str, ...]:
    """Return a warning if the loss depends on some trainable variables only.

    Args:
        variables: the trainable variables of a model.
        gradients: of the loss, for each of them; None: the loss does not depend on it.
    """
    names = [
        variable.path
        for variable, gradient in zip(variables, gradients, strict=True)
        if gradient is None
    ]
    if not names:
        return ()
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"the loss does not depend on {', '.join(names[:_SHOWN])}{more}, so training does not "
        "change them. Operations without gradients may be behind their layers (tf.round, "
        "tf.argmax, tf.cast to integers); or set trainable=False where that is meant.",
    )


def warn_of_untracked(model: keras.Model) -> tuple[str, ...]:
    """Return a warning for each trainable ``tf.Variable`` that is an attribute of a layer.

    Keras neither trains nor saves it.
    """
    return tuple(
        f"{name} of the layer {layer.name} is a tf.Variable, which Keras neither trains nor saves. "
        f"Make it with self.{name} = self.add_weight(shape=…, initializer=…)."
        for layer in (model, *nested_layers(model))
        for name in _find_variables(layer)
    )


def _find_variables(layer: keras.Layer) -> Iterator[str]:
    known = {id(variable.value) for variable in layer.variables}
    for name, value in vars(layer).items():
        if isinstance(value, tf.Variable) and value.trainable and id(value) not in known:
            yield name
