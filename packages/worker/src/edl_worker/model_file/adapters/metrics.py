"""Metrics: a mapping, a function that returns one, or a function that computes a batch's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from edl_worker.model_file.arguments import PARAMETER_NAMES, BoundFunction, Definition, bind
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.description import MetricDefinitions
from elasticdl.python.common.constants import Mode


def no_metrics() -> MetricDefinitions:
    """The metrics of a model file that defines none."""
    return MetricDefinitions({}, _values_of({}), ())


def adapt_metrics(definition: Definition, caller: DefinitionCaller) -> MetricDefinitions:
    """The metrics that ``eval_metrics_fn`` or ``create_metrics`` defines.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    if isinstance(definition.value, Mapping):
        return _metrics_by_name(definition, definition.value)
    if _computes_batch_values(definition):
        bound = bind(
            definition,
            caller.function(definition),
            required=(),
            optional=("outputs", "labels", "mode"),
            params=caller.params,
        )
        return MetricDefinitions({}, _checked(bound), ())
    return _metrics_by_name(definition, caller.call(definition))


def _computes_batch_values(definition: Definition) -> bool:
    names = set(definition.parameters())
    return definition.name.endswith(".create_metrics") or bool(
        names & (PARAMETER_NAMES["labels"] | PARAMETER_NAMES["outputs"])
    )


def _checked(bound: BoundFunction) -> Callable[..., Mapping[str, Any]]:
    def batch_values(*, outputs: Any, labels: Any) -> Mapping[str, Any]:
        values = bound(outputs=outputs, labels=labels, mode=Mode.EVALUATION)
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            raise bound.definition.error(
                f"returned a {type(values).__name__}",
                "Return a dictionary of metric name to value.",
            )
        return values

    return batch_values


def _metrics_by_name(definition: Definition, value: Any) -> MetricDefinitions:
    if not isinstance(value, Mapping):
        raise definition.error(f"returned a {type(value).__name__}", _REMEDY)
    keras_metrics: dict[str, keras.metrics.Metric] = {}
    functions: dict[str, BoundFunction] = {}
    for key, metric in value.items():
        name = str(key)
        if isinstance(metric, type) and issubclass(metric, keras.metrics.Metric):
            metric = metric()
        if isinstance(metric, keras.metrics.Metric):
            keras_metrics[name] = metric
        elif callable(metric):
            metric_definition = Definition("metric", name, metric)
            functions[name] = bind(
                metric_definition, metric, required=("labels", "outputs"), params={}
            )
        else:
            raise definition.error(
                f"has a metric {name} that is a {type(metric).__name__}", _REMEDY
            )
    return MetricDefinitions(keras_metrics, _values_of(functions), tuple(functions))


def _values_of(functions: Mapping[str, BoundFunction]) -> Callable[..., Mapping[str, Any]]:
    def batch_values(*, outputs: Any, labels: Any) -> Mapping[str, Any]:
        return {
            name: function(outputs=outputs, labels=labels) for name, function in functions.items()
        }

    return batch_values


_REMEDY = (
    "Return a dictionary of metric name to a Keras metric, or to a function "
    "(labels, predictions) of a scalar or of one value per sample."
)
