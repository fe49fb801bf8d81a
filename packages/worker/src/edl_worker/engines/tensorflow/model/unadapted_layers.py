"""Finds layers that were to take their state from data, and have none: ``adapt`` was not called.

Keras itself is silent about a ``Normalization`` that subtracts 0 and divides by 1.
"""

from __future__ import annotations

from collections.abc import Iterable

import keras
import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.explanation import ADAPT


def check_adapted(layers: Iterable[tuple[keras.layers.Layer, str]]) -> None:
    """Check that layers which normalize know the mean and the variance of the data.

    Args:
        layers: those that the model file itself makes, each with its file and line.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    for layer, place in layers:
        if isinstance(layer, keras.layers.Normalization) and is_unadapted(layer):
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"Normalization {layer.name} was never adapted: it subtracts 0 and divides by 1, "
                "so it changes nothing",
                where=place,
                remedy=f"{ADAPT} Or give it mean=... and variance=..., or leave it out.",
            )


def is_unadapted(layer: keras.layers.Normalization) -> bool:
    """Return whether a layer normalizes with its initial mean and variance."""
    if layer.input_mean is not None or not layer.built:
        return False
    mean, variance = layer.adapt_mean.numpy(), layer.adapt_variance.numpy()
    return not np.any(mean) and bool(np.all(variance == 1))
