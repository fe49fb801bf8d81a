"""Metrics by output and name, for a model with several outputs: ``{"probs": {"auc": AUC()}}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from edl_worker.engines.tensorflow.model.description import MetricDefinitions


class OutputMetric(keras.metrics.Metric):
    """A metric of one output of the model."""

    def __init__(
        self, metric: keras.metrics.Metric, output: str, output_names: Sequence[str]
    ) -> None:
        super().__init__(name=metric.name)
        self.metric = metric
        self.output = output
        self.output_names = output_names

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        labels = _labels_of(y_true, self.output)
        outputs = _output_of(y_pred, self.output, self.output_names)
        return self.metric.update_state(labels, outputs, sample_weight)

    def result(self) -> Any:
        value = self.metric.result()
        if isinstance(value, Mapping) and hasattr(self.metric, "metrics"):
            (value,) = value.values()  # of a metric that Keras chooses by the shape of the labels
        return value

    def reset_state(self) -> None:
        self.metric.reset_state()


def _labels_of(labels: Any, output: str) -> Any:
    """Return the labels of one output; all labels if they are not by output."""
    return labels[output] if isinstance(labels, Mapping) and output in labels else labels


def _output_of(outputs: Any, output: str, output_names: Sequence[str]) -> Any:
    """Return one of the outputs, which are a mapping, a list in the order of names, or only one."""
    if isinstance(outputs, Mapping) or output not in output_names:
        return outputs[output]
    return tf.nest.flatten(outputs)[list(output_names).index(output)]


def is_by_output(value: Any) -> bool:
    """Whether a value maps outputs to mappings of metrics."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(inner, Mapping) for inner in value.values())
    )


def metrics_by_output(
    value: Mapping[Any, Any],
    by_name: Callable[[Any], MetricDefinitions],
    output_names: Sequence[str] = (),
) -> MetricDefinitions:
    """Return the metrics of all outputs, named ``probs_auc``, as Keras names them.

    Args:
        by_name: reads the metrics of one output.
        output_names: of the model; empty if it has none.
    """
    parts = {str(output): by_name(metrics) for output, metrics in value.items()}

    def batch_values(*, outputs: Any, labels: Any, **given: Any) -> dict[str, Any]:
        return {
            f"{output}_{name}": found
            for output, part in parts.items()
            for name, found in part.batch_values(
                outputs=_output_of(outputs, output, output_names),
                labels=_labels_of(labels, output),
                **given,
            ).items()
        }

    return MetricDefinitions(
        {
            f"{output}_{name}": OutputMetric(metric, output, output_names)
            for output, part in parts.items()
            for name, metric in part.keras_metrics.items()
        },
        batch_values,
        tuple(f"{output}_{name}" for output, part in parts.items() for name in part.names),
        is_computed=any(part.is_computed for part in parts.values()),
    )
