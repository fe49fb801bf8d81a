"""Columns set dtype and shape of features and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.pipelines.columns import Column, shape_features, shape_labels


def test_columns_set_dtype_and_shape() -> None:
    image = Column("image", (1, 2, 3), tf.float32)
    shaped = shape_features({"image": np.arange(12).reshape(2, 6), "more": 1}, [image], "here")
    assert (shaped["image"].shape, shaped["image"].dtype) == ((2, 1, 2, 3), tf.float32)
    assert list(shaped) == ["image"]


@pytest.mark.parametrize(
    ("labels", "shape"), [(np.zeros(4), (4,)), (np.zeros((4, 1)), (4, 1))], ids=["flat", "column"]
)
def test_a_scalar_label_keeps_its_shape(labels: Any, shape: tuple[int, ...]) -> None:
    shaped = shape_labels(labels, [Column("label", (1,), tf.int64)], "here")
    assert (shaped.shape, shaped.dtype) == (shape, tf.int64)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"image": np.zeros((2, 5))}, r"shape \(5,\) per record, its column has \(1, 2, 3\)"),
        ({"picture": np.zeros((2, 6))}, "lack the column image; they are picture"),
        ({"image": np.array([b"a", b"b"], object)}, "dtype string, its column float32"),
    ],
)
def test_features_that_do_not_fit_their_column(features: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        shape_features(features, [Column("image", (1, 2, 3), tf.float32)], "here")
