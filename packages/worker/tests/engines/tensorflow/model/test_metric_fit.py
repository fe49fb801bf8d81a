"""Metrics of probabilities that get logits are named, with the metric that takes them."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.model.description import MetricDefinitions
from edl_worker.engines.tensorflow.model.metric_fit import find_metric_misfit, warn_of_logits

METRICS = keras.metrics


def find(metric: Any, activation: str | None, labels: Any = (0, 1)) -> tuple[Any, tuple[str, ...]]:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activation=activation)])
    metrics = MetricDefinitions({}, dict, (), {"metrics": [metric]}, place="m.py:3, metrics")
    given = (metrics, model, tf.constant(labels), tf.TensorSpec((2, 1)))
    return find_metric_misfit(*given), warn_of_logits(*given)


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        (METRICS.AUC(), "AUC(from_logits=True)"),
        (METRICS.Recall(), "Recall(thresholds=0.0)"),
        (METRICS.BinaryAccuracy(), "BinaryAccuracy(threshold=0.0)"),
        ("accuracy", "BinaryAccuracy(threshold=0.0)"),
    ],
)
def test_a_metric_of_probabilities_that_gets_logits(metric: Any, better: str) -> None:
    error, (warning,) = find(metric, None)
    assert error is None
    assert warning.startswith("m.py:3, metrics: the metric ")
    assert warning.endswith(f"use keras.metrics.{better}")


@pytest.mark.parametrize(
    ("metric", "activation", "labels"),
    [
        (METRICS.AUC(), "sigmoid", (0, 1)),
        (METRICS.AUC(from_logits=True), None, (0, 1)),
        (METRICS.BinaryAccuracy(threshold=0.0), None, (0, 1)),
        (METRICS.Precision(thresholds=0.0), None, (0, 1)),
        ("accuracy", "sigmoid", (0, 1)),
        ("accuracy", None, (0.5, 2.5)),
        ("mae", None, (0, 1)),
        (METRICS.MeanSquaredError(), None, (0, 1)),
    ],
)
def test_metrics_that_fit(metric: Any, activation: str | None, labels: Any) -> None:
    assert find(metric, activation, labels) == (None, ())


@pytest.mark.parametrize("activation", ["sigmoid", None])
def test_accuracy_of_equal_values_is_refused_for_probabilities(activation: str | None) -> None:
    error, _ = find(METRICS.Accuracy(), activation)
    assert 'use "accuracy"' in error.remedy
    assert error.where == "m.py:3, metrics"


@pytest.mark.parametrize("sparse", [True, False])
def test_an_overlap_of_classes_takes_their_numbers(*, sparse: bool) -> None:
    metrics = MetricDefinitions(
        {"iou": METRICS.MeanIoU(num_classes=3, sparse_y_pred=sparse)}, dict, (), place="m.py:3"
    )
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    error = find_metric_misfit(metrics, model, tf.constant([0, 1]), tf.TensorSpec((2, 3)))
    assert (error is not None and "sparse_y_pred=False" in error.remedy) is sparse
