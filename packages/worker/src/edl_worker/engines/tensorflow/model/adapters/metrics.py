"""Metrics: a mapping, a list, a function that returns one, or one of a batch's values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras

from edl_worker.engines.tensorflow.internals import compiled_metrics
from edl_worker.engines.tensorflow.model.adapters.integer_labels import with_wide_labels
from edl_worker.engines.tensorflow.model.adapters.keras_names import suggest_name
from edl_worker.engines.tensorflow.model.adapters.output_metrics import (
    is_by_output,
    metrics_by_output,
)
from edl_worker.engines.tensorflow.model.description import AS_IN_KERAS, LOSS, MetricDefinitions
from edl_worker.model_file import keras_2
from edl_worker.model_file.arguments import PARAMETER_NAMES, BoundFunction, Definition, bind
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode

RENAMED_LOSS = "metric_loss"


def no_metrics() -> MetricDefinitions:
    """Return the metrics of a model file that defines none."""
    return MetricDefinitions({}, _values_of({}), ())


def adapt_metrics(
    definition: Definition, caller: DefinitionCaller, output_names: Sequence[str] = ()
) -> MetricDefinitions:
    """Return the metrics that ``eval_metrics_fn``, ``metrics`` or ``create_metrics`` defines.

    Args:
        output_names: of the model; empty if it has none.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    return replace(_adapt(definition, caller, output_names), place=definition.place)


def _adapt(
    definition: Definition, caller: DefinitionCaller, output_names: Sequence[str]
) -> MetricDefinitions:
    value = definition.value
    if callable(value) and _computes_batch_values(definition):
        bound = bind(
            definition,
            caller.function(definition),
            required=(),
            optional=("outputs", "labels", "mode"),
            params=caller.params,
        )
        return MetricDefinitions({}, with_wide_labels(_check_values(bound)), (), is_computed=True)
    if callable(value):
        value = caller.call(definition)
    if is_by_output(value):
        return metrics_by_output(
            value, lambda metrics: _metrics_by_name(definition, metrics), output_names
        )
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping) and len(output_names) > 1:
        lists = [key for key, each in value.items() if isinstance(each, list | tuple)]
        if unknown := [key for key in lists if key not in output_names]:
            raise definition.error(
                f"names {', '.join(map(repr, unknown))}, but the outputs of the model are "
                f"{', '.join(output_names)}",
                "Use the names of the outputs as the keys of lists of metrics.",
            )
    if isinstance(value, list | tuple) or _is_of_compile(value, output_names):
        metric = _compile(definition, value, None, output_names)
        compiled = {"metrics": value}
        return MetricDefinitions({AS_IN_KERAS: metric}, _values_of({}), (), compiled)
    return _metrics_by_name(definition, value)


def _is_of_compile(value: Any, output_names: Sequence[str]) -> bool:
    """Whether a mapping has outputs as keys, as in ``model.compile``, and not names of metrics."""
    if not isinstance(value, Mapping) or not value:
        return False
    lists = any(isinstance(metrics, list | tuple) for metrics in value.values())
    return lists or set(value) <= set(output_names)


def add_weighted_metrics(
    metrics: MetricDefinitions,
    definition: Definition,
    caller: DefinitionCaller,
    output_names: Sequence[str] = (),
) -> MetricDefinitions:
    """Return the metrics and those of ``weighted_metrics``, to which sample weights apply.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    value = caller.call(definition) if callable(definition.value) else definition.value
    if isinstance(value, str):
        value = [value]
    listed = metrics.for_compile if AS_IN_KERAS in metrics.keras_metrics else {}
    metric = _compile(definition, listed.get("metrics"), value, output_names)
    return replace(
        metrics,
        keras_metrics={**metrics.keras_metrics, AS_IN_KERAS: metric},
        for_compile={**metrics.for_compile, "weighted_metrics": value},
        place=metrics.place or definition.place,
    )


def _compile(
    definition: Definition, metrics: Any, weighted: Any, output_names: Sequence[str]
) -> keras.metrics.Metric:
    """Return metrics that ``model.compile`` would take, which have the same values there."""
    for each in keras.tree.flatten(metrics if weighted is None else weighted):
        if isinstance(each, str) and each.lower() not in _BY_SHAPE:
            _by_name(definition, each)
        elif each is not None and not isinstance(each, str) and not callable(each):
            raise definition.error(f"has {type_with_article(each)} among its metrics", _NAMES)
    return compiled_metrics(metrics, weighted, output_names)


def _by_name(definition: Definition, name: str) -> Any:
    try:
        return keras.metrics.get(name)
    except ValueError:
        raise definition.error(
            f"names {name!r}, a metric that Keras does not have",
            f"Write a list: {re.split(r'[, ]+', name)}."
            if "," in name
            else suggest_name("eval_metrics_fn", name) or _NAMES,
        ) from None


def _computes_batch_values(definition: Definition) -> bool:
    names = set(definition.parameters())
    return definition.name.endswith(".create_metrics") or bool(
        names & (PARAMETER_NAMES["labels"] | PARAMETER_NAMES["outputs"])
    )


def _check_values(bound: BoundFunction) -> Callable[..., Mapping[str, Any]]:
    def batch_values(*, outputs: Any, labels: Any) -> Mapping[str, Any]:
        values = bound(outputs=outputs, labels=labels, mode=Mode.EVALUATION)
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            raise bound.definition.error(
                f"returned {type_with_article(values)}",
                "Return a dictionary of metric name to value.",
            )
        return _with_renamed_loss(bound.definition, values)

    return batch_values


def _with_renamed_loss(definition: Definition, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values with another name for one called ``loss``, which edl measures itself.

    Files for ElasticDL have it: there it was the only loss of an evaluation.
    """
    if LOSS not in values or RENAMED_LOSS in values:
        return values
    compatibility.warn_once(
        f"{definition.signature} returns a value {LOSS}, which is reported as {RENAMED_LOSS}: edl "
        "measures the loss itself"
    )
    return {RENAMED_LOSS if name == LOSS else name: value for name, value in values.items()}


def _metrics_by_name(definition: Definition, value: Any) -> MetricDefinitions:
    if not isinstance(value, Mapping):
        raise definition.error(f"returned {type_with_article(value)}", _REMEDY)
    keras_metrics: dict[str, keras.metrics.Metric] = {}
    functions: dict[str, BoundFunction] = {}
    for key, metric in value.items():
        name = str(key)
        if isinstance(metric, str):
            metric = (
                compiled_metrics([metric], None, ())
                if metric.lower() in _BY_SHAPE
                else _by_name(definition, metric)
            )
        if isinstance(metric, type) and (
            issubclass(metric, keras.metrics.Metric) or compatibility.is_of_keras_2(metric)
        ):
            metric = metric()
        metric = compatibility.to_keras_3(metric)
        if isinstance(metric, keras.metrics.Metric):
            keras_metrics[name] = metric
        elif keras_2.package_of(type(metric)):
            raise definition.error(
                f"has a metric {name} that is {type_with_article(metric)}", keras_2.REMEDY
            )
        elif callable(metric):
            metric_definition = Definition("metric", name, metric)
            functions[name] = bind(
                metric_definition, metric, required=("labels", "outputs"), params={}
            )
        else:
            raise definition.error(
                f"has a metric {name} that is {type_with_article(metric)}", _REMEDY
            )
    return MetricDefinitions(
        keras_metrics,
        _values_of(functions),
        tuple(functions),
        {"metrics": list(keras_metrics.values())},
        is_computed=bool(functions),
    )


def _values_of(functions: Mapping[str, BoundFunction]) -> Callable[..., Mapping[str, Any]]:
    def batch_values(*, outputs: Any, labels: Any) -> Mapping[str, Any]:
        return {
            name: function(outputs=outputs, labels=labels) for name, function in functions.items()
        }

    return batch_values


_BY_SHAPE = ("accuracy", "acc")
"""Names that Keras resolves when it sees labels and outputs."""

_NAMES = "Use names of keras.metrics (accuracy, mae, AUC), Keras metrics, or functions."

_REMEDY = (
    "Return a dictionary of metric name to a Keras metric, or to a function "
    "(labels, predictions) of a scalar or of one value per sample."
)
