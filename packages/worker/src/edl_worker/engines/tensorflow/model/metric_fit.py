"""Finds metrics of Keras that do not fit the labels or the outputs, and says which metric fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.model.description import MetricDefinitions
from edl_worker.engines.tensorflow.model.loss_parts import output_activations, show_shape

# Names without underscores. Of classes by their numbers, with one label per example:
_OF_NUMBERS = ("sparsecategoricalaccuracy", "sparsetopkcategoricalaccuracy")
# with one label per class:
_OF_ONE_HOT = ("categoricalaccuracy", "topkcategoricalaccuracy", "f1score")
_OF_RANK_2 = ("F1Score", "FBetaScore", "R2Score")
# and of one question, with one output per label:
_OF_QUESTIONS = ("auc", "precision", "recall", "binaryaccuracy")


def find_metric_misfit(
    metrics: MetricDefinitions, model: keras.Model, labels: Any, outputs: Any
) -> EdlError | None:
    """Return the error for a metric that cannot be meant for these labels and outputs.

    Args:
        model: tells which activations its outputs have.
        labels: of a minibatch.
        outputs: their specifications, as the model returns them; several are not judged.
    """
    shapes = _shapes_of(labels, outputs)
    if shapes is None:
        return None
    label, output = shapes
    for metric in _list_metrics(metrics):
        name = _name_of(metric)
        if getattr(metric, "sparse_y_pred", True) is False:  # it takes one number per class
            continue
        remedy = _remedy(name, label, output, _activation_of(model))
        if remedy:
            return EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the metric {name} does not fit labels {show_shape(label)} and outputs "
                f"{show_shape(output)}",
                where=metrics.place,
                remedy=remedy,
            )
    return None


def warn_of_logits(
    metrics: MetricDefinitions, model: keras.Model, labels: Any, outputs: Any
) -> tuple[str, ...]:
    """Return warnings of metrics that take probabilities, and get logits of two classes.

    The arguments are those of ``find_metric_misfit``.
    """
    shapes = _shapes_of(labels, outputs)
    if shapes is None or shapes[1] != (1,) or _activation_of(model) != "linear":
        return ()
    if labels.dtype == tf.string or not set(np.unique(labels)) <= {0, 1}:
        return ()
    better: dict[str, str] = {}
    for each in _list_metrics(metrics):
        better.setdefault(_for_logits(each), _name_of(each))  # a name, or the metric made of it
    return tuple(
        f"{metrics.place}: the metric {name} takes probabilities, and the last layer has no "
        f"activation: use {call}"
        for call, name in better.items()
        if call
    )


def _for_logits(metric: Any) -> str:
    """Return the call that makes a metric for logits; empty if it is one, or takes them."""
    plain = _plain(_name_of(metric))
    settings = {} if isinstance(metric, str) else metric.get_config()
    if plain == "auc" and not settings.get("from_logits"):
        return "keras.metrics.AUC(from_logits=True)"
    if plain in ("accuracy", "acc", "binaryaccuracy") and settings.get("threshold", 0.5) == 0.5:
        return "keras.metrics.BinaryAccuracy(threshold=0.0)"
    if plain in ("precision", "recall") and settings.get("thresholds") is None:
        return f"keras.metrics.{plain.title()}(thresholds=0.0)"
    return ""


def _shapes_of(labels: Any, outputs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the shapes of the label and the output of an example; None if there are several."""
    wanted, shape = getattr(labels, "shape", None), getattr(outputs, "shape", None)
    if shape is None or wanted is None or not shape.rank or not wanted.rank:
        return None
    return tuple(wanted[1:]), tuple(shape[1:])


def _activation_of(model: keras.Model) -> str:
    """Return the activation of a model's only output; empty if it is not known."""
    found = output_activations(model)
    return found[0] if len(found) == 1 else ""


def _remedy(name: str, label: tuple[Any, ...], output: tuple[Any, ...], activation: str) -> str:
    """Return the remedy for a metric that does not fit; empty if it fits."""
    if name == "Accuracy" and activation in ("sigmoid", "softmax", "linear"):
        return (
            "Accuracy counts outputs that equal their label, which numbers like 0.7 never do: use "
            '"accuracy", which chooses the accuracy for labels and outputs.'
        )
    if name in _OF_RANK_2 and len(label) == 0 and output == (1,):
        return f"Yield labels of the shape (1,), which {name} needs: label[tf.newaxis]."
    if not output or (output[-1] or 0) < 2:
        return ""
    has_numbers, has_one_hot = label in (output[:-1], (*output[:-1], 1)), label == output
    plain = _plain(name)
    if name == "MeanIoU" and has_numbers:
        return (
            "MeanIoU takes the numbers of classes as outputs, too: write "
            f"MeanIoU(num_classes={output[-1]}, sparse_y_pred=False), which takes one number per "
            "class."
        )
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


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _name_of(metric: Any) -> str:
    return metric if isinstance(metric, str) else type(metric).__name__


def _list_metrics(metrics: MetricDefinitions) -> list[Any]:
    """Return the metrics of Keras in a model file, as objects or by their names."""
    listed = metrics.for_compile.get("metrics")
    given = [] if isinstance(listed, Mapping) else tf.nest.flatten(listed or [])
    return [
        each
        for each in (*given, *metrics.keras_metrics.values())
        if isinstance(each, str) or (isinstance(each, keras.metrics.Metric) and _is_of_keras(each))
    ]


def _is_of_keras(metric: keras.metrics.Metric) -> bool:
    """Whether a metric is one that Keras documents: neither the file's own nor a container."""
    return getattr(keras.metrics, type(metric).__name__, None) is type(metric)


def find_replaced_variable(metric: keras.metrics.Metric) -> tuple[str, str] | None:
    """Return what is wrong, and what to do, if a metric has a tensor in place of a variable."""
    for part in (metric, *metric.metrics) if hasattr(metric, "metrics") else (metric,):
        if type(part).__module__.startswith("keras."):
            continue
        attributes = {name: each for name, each in vars(part).items() if not name.startswith("_")}
        held = {id(each) for value in attributes.values() for each in tf.nest.flatten(value)}
        lost = [variable for variable in part.variables if id(variable) not in held]
        names = [name for name, value in attributes.items() if isinstance(value, tf.Tensor)]
        if lost and names:
            name = names[0]
            return (
                f"update_state of the metric {type(part).__name__} replaces the variable "
                f"self.{name} by a tensor",
                f"Write self.{name}.assign_add(x) instead of self.{name} += x, and "
                f"self.{name}.assign(x) instead of self.{name} = x.",
            )
    return None
