"""Warns of features that the input function scales, and a layer scales once more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import consumers

_SMALL = 1 / 50
"""A factor for pixels, which are 255 at most, and not for shares."""


def warn_of_scaled_twice(features: Iterable[tuple[str, Any, Any]]) -> tuple[str, ...]:
    """Return a warning for each feature from -1 to 1 that a ``Rescaling`` makes smaller still.

    Args:
        features: the name and the values of each, and the input of the model that gets it.
    """
    found = []
    for name, value, model_input in features:
        layers = [it for it in consumers(model_input) if isinstance(it, keras.layers.Rescaling)]
        if not layers or not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            continue
        scale, numbers = layers[0].scale, value.numpy()
        is_small = isinstance(scale, int | float) and 0 < scale <= _SMALL
        if is_small and np.mod(numbers, 1).any() and np.abs(numbers).max() <= 1:
            found.append(
                f"{layers[0].name} multiplies the feature {name} by {scale:.3g}, and its numbers "
                f"are {numbers.min():.3g} to {numbers.max():.3g} already: leave the layer out, or "
                "the division in the input function"
            )
    return tuple(found)
