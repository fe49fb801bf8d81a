"""Compares arrays of labels with the losses and metrics that a model is compiled with."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_worker.engines.tensorflow.internals import compile_arguments
from edl_worker.engines.tensorflow.model.description import LossFunction, MetricDefinitions
from edl_worker.engines.tensorflow.model.loss_fit import find_misfit
from edl_worker.engines.tensorflow.model.metric_fit import find_metric_misfit

_MAX_NUMBERS = 4_000_000
"""Labels that are looked at; all minibatches are checked while a job trains."""


def find_compiled_misfit(model: keras.Model, labels: Any) -> EdlError | None:
    """Return the error for a loss or a metric that cannot be meant for these labels, or None.

    Args:
        model: a functional one, compiled.
        labels: arrays in the structure that ``fit`` takes.
    """
    flat = tf.nest.flatten(labels)
    if not flat or any(each.dtype.kind not in "biuf" for each in flat):
        return None
    widest = max(math.prod(each.shape[1:]) for each in flat)
    rows = max(1, _MAX_NUMBERS // max(1, widest))
    labels = tf.nest.map_structure(lambda each: tf.convert_to_tensor(each[:rows]), labels)
    # A Sequential model that was never called has only a list of outputs.
    made = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    outputs = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), made)
    given = compile_arguments(model)
    loss = LossFunction(
        lambda **_: None, None, "loss", "model.compile(loss=...)", {"loss": given.get("loss")}
    )
    metrics = MetricDefinitions(
        {},
        dict,
        (),
        {"metrics": given.get("metrics")},
        place="model.compile(metrics=...)",
    )
    error, _ = find_misfit(loss, model, labels, outputs)
    return error or find_metric_misfit(metrics, model, labels, outputs)
