"""Finds metrics of Keras that do not fit the labels or the outputs, and says which metric fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.model.description import MetricDefinitions
from edl_worker.engines.tensorflow.model.loss_parts import show_shape

# Names without underscores. Of classes by their numbers, with one label per example:
_OF_NUMBERS = ("sparsecategoricalaccuracy", "sparsetopkcategoricalaccuracy")
# with one label per class:
_OF_ONE_HOT = ("categoricalaccuracy", "topkcategoricalaccuracy", "f1score")
# and of one question, with one output per label:
_OF_QUESTIONS = ("auc", "precision", "recall", "binaryaccuracy")


def find_metric_misfit(metrics: MetricDefinitions, labels: Any, outputs: Any) -> EdlError | None:
    """Return the error for a metric that cannot be meant for these labels and outputs.

    Args:
        labels: of a minibatch.
        outputs: their specifications, as the model returns them; several are not judged.
    """
    shape, wanted = getattr(outputs, "shape", None), getattr(labels, "shape", None)
    if shape is None or wanted is None or not shape.rank or not wanted.rank:
        return None
    output, label = tuple(shape[1:]), tuple(wanted[1:])
    classes = (output[-1] or 0) if output else 0
    if classes < 2:
        return None
    for name in _names_of(metrics):
        remedy = _remedy(name, label in (output[:-1], (*output[:-1], 1)), label == output)
        if remedy:
            return EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the metric {name} does not fit labels {show_shape(label)} and outputs "
                f"{show_shape(output)}",
                where=metrics.place,
                remedy=remedy,
            )
    return None


def _remedy(name: str, has_numbers: bool, has_one_hot: bool) -> str:
    """Return the remedy for a metric that does not fit; empty if it fits."""
    plain = name.replace("_", "").lower()
    if plain in _OF_NUMBERS and has_one_hot:
        return 'Use "accuracy" or CategoricalAccuracy: the labels have one number per class.'
    if plain in _OF_ONE_HOT and has_numbers:
        return 'Use "accuracy" or SparseCategoricalAccuracy: the labels are numbers of classes.'
    if plain in _OF_QUESTIONS and has_numbers:
        return (
            f"{name} takes one output per label. For classes use SparseCategoricalAccuracy, or "
            "yield labels with one number per class: tf.one_hot(label, classes)."
        )
    return ""


def _names_of(metrics: MetricDefinitions) -> list[str]:
    """Return the names of the metrics of Keras in a model file, of their classes or as texts."""
    listed = metrics.for_compile.get("metrics")
    given = [] if isinstance(listed, Mapping) else tf.nest.flatten(listed or [])
    return [
        each if isinstance(each, str) else type(each).__name__
        for each in (*given, *metrics.keras_metrics.values())
        if isinstance(each, str)
        or (isinstance(each, keras.metrics.Metric) and type(each).__module__.startswith("keras."))
    ]
