"""The weights of examples by their class, as ``class_weight`` of Keras's ``fit`` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def weigh_by_class(labels: Any, by_class: Mapping[int, float]) -> Any:
    """Return the weight of each example; those of other classes count once. May be traced.

    Args:
        labels: numbers of classes, or one number per class for each example.
    """
    if labels.shape.rank > 1 and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    elif labels.shape.rank > 1:
        labels = tf.argmax(labels, -1)
    classes = tf.cast(tf.round(tf.cast(labels, tf.float32)), tf.int64)
    known = tf.constant(list(by_class), tf.int64)
    factors = tf.constant(list(by_class.values()), tf.float32)
    hits = tf.cast(tf.equal(classes[..., tf.newaxis], known), tf.float32)
    return tf.reduce_sum(hits * (factors - 1), -1) + 1
