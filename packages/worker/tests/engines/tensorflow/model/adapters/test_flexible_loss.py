"""A loss of the model file gets labels as they are, and as fractions where it needs those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.model.adapters.flexible_loss import FlexibleLoss
from edl_worker.model_file.arguments import Definition, bind

LABELS, OUTPUTS = tf.constant([[1], [0]]), tf.constant([[0.5], [0.5]])


def make(function: Callable[..., Any]) -> FlexibleLoss:
    return FlexibleLoss(
        bind(
            Definition("loss", "loss", function),
            function,
            required=("labels", "outputs"),
            params={},
        )
    )


def test_whole_numbers_that_are_subtracted_become_fractions_as_in_keras() -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return tf.reduce_mean(tf.square(labels - predictions))

    flexible = make(loss)
    assert [float(flexible(outputs=OUTPUTS, labels=LABELS)) for _ in range(2)] == [0.25, 0.25]


def test_whole_numbers_stay_whole_for_a_loss_that_looks_them_up() -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return tf.gather(tf.constant([3.0, 4.0]), labels)

    assert make(loss)(outputs=OUTPUTS, labels=LABELS).numpy().tolist() == [[4.0], [3.0]]


def test_another_mistake_is_told_as_it_is() -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        number: Any = 5
        return labels + len(number)

    with pytest.raises(TypeError, match="has no len"):
        make(loss)(outputs=OUTPUTS, labels=LABELS)
