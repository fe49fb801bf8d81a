"""Categories that a layer does not have are refused where training meets them."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from edl_proto.errors import ErrorCode
from edl_worker.engines.tensorflow.category_check import check_categories
from edl_worker.model_file.errors import user_code_error


def encode(*categories: int) -> np.ndarray:
    layer = keras.layers.CategoryEncoding(3, output_mode="count", name="encode_city")
    traced = tf.function(layer, autograph=False)
    return np.asarray(traced(tf.constant([[each] for each in categories])))


@pytest.mark.parametrize("category", [3, -1])
def test_a_category_beyond_those_of_the_layer(category: int) -> None:
    with check_categories(), pytest.raises(tf.errors.InvalidArgumentError) as caught:
        encode(0, category)
    error = user_code_error(
        caught.value, Path("/zoo"), code=ErrorCode.USER_CODE, action="", place="", remedy=""
    )
    assert f"encode_city takes the categories 0 to 2, and got {category}" in error.what
    assert "num_tokens=" in error.remedy


def test_all_categories_of_the_layer() -> None:
    with check_categories():
        assert encode(0, 2).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_outside_of_training_it_is_the_layer_of_keras() -> None:
    with check_categories():
        encode(0)
    assert encode(3).tolist() == [[0, 0, 0]]
