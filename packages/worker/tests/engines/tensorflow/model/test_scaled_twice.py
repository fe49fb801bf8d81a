"""Pixels that are divided by 255 twice are told before the training."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.model.scaled_twice import warn_of_scaled_twice

SHARES = [[0.2, 0.9], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("scale", "offset", "values", "count"),
    [
        (1 / 255, 0.0, SHARES, 1),
        (1 / 127.5, -1.0, SHARES, 1),
        (1 / 255, 0.0, [[12.5, 255.0], [0.0, 3.0]], 0),
        (1 / 255, 0.0, [[0.0, 1.0], [0.0, 1.0]], 0),
        (0.5, 0.0, SHARES, 0),
        ([1 / 255, 1.0], 0.0, SHARES, 0),
    ],
)
def test_a_rescaling_of_what_is_scaled(scale: Any, offset: float, values: Any, count: int) -> None:
    layers = [keras.layers.Rescaling(scale, offset, name="rescale"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((2,)), *layers])
    warnings = warn_of_scaled_twice([("image", tf.constant(values), model.inputs[0])])
    assert len(warnings) == count
    assert all("rescale multiplies the feature image by 0.0" in each for each in warnings)
