"""Metrics by output and name, for a model with several outputs: ``{"probs": {"auc": AUC()}}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from edl_worker.model_file.description import MetricDefinitions


class OutputMetric(keras.metrics.Metric):  # type: ignore[misc]
    """A metric of one output of the model."""

    def __init__(self, metric: keras.metrics.Metric, output: str) -> None:
        super().__init__(name=metric.name)
        self.metric = metric
        self.output = output

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self.metric.update_state(y_true, y_pred[self.output], sample_weight)

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()


def is_by_output(value: Any) -> bool:
    """Whether a value maps outputs to mappings of metrics."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(inner, Mapping) for inner in value.values())
    )


def metrics_by_output(
    value: Mapping[Any, Any], by_name: Callable[[Any], MetricDefinitions]
) -> MetricDefinitions:
    """The metrics of all outputs, named ``probs_auc``, as Keras names them.

    Args:
        by_name: reads the metrics of one output.
    """
    parts = {str(output): by_name(metrics) for output, metrics in value.items()}

    def batch_values(*, outputs: Any, labels: Any, **given: Any) -> dict[str, Any]:
        return {
            f"{output}_{name}": found
            for output, part in parts.items()
            for name, found in part.batch_values(
                outputs=outputs[output], labels=labels, **given
            ).items()
        }

    return MetricDefinitions(
        {
            f"{output}_{name}": OutputMetric(metric, output)
            for output, part in parts.items()
            for name, metric in part.keras_metrics.items()
        },
        batch_values,
        tuple(f"{output}_{name}" for output, part in parts.items() for name in part.names),
        is_computed=any(part.is_computed for part in parts.values()),
    )
