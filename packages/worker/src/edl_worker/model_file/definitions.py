"""Turns the parts of the contract into what training calls; each fault goes to the findings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import ROLES, BoundFunction, Definition, bind
from edl_worker.model_file.columns import Column, read_columns
from edl_worker.model_file.definition_caller import FAILED, DefinitionCaller
from edl_worker.model_file.metrics import read_metrics
from edl_worker.model_file.model_file import Reduction
from edl_worker.model_file.pipelines.dataset_pipeline import DatasetPipeline
from edl_worker.model_file.pipelines.records_pipeline import RecordsPipeline
from edl_worker.model_file.zoo.resolver import input_kind

# The update rules that the master has, by the name of the Keras class.
OPTIMIZERS = frozenset(
    (
        *("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop"),
        *("Adamax", "Nadam", "Ftrl", "Lion"),
    )
)
_LOSS_ROLES = {"y_true": "labels", "y_pred": "outputs"}


def read_optimizer(part: Definition, bench: DefinitionCaller) -> keras.optimizers.Optimizer | None:
    """The optimizer, created once."""
    value = part.value
    if not isinstance(value, keras.optimizers.Optimizer):
        if not callable(value) and not isinstance(value, property):
            bench.refuse(part, f"is a {type(value).__name__}", _OPTIMIZER_REMEDY)
            return None
        value = bench.call(part)
        if value is FAILED:
            return None
    if not isinstance(value, keras.optimizers.Optimizer):
        bench.refuse(
            part,
            f"returned a {type(value).__name__}, not a Keras optimizer",
            _OPTIMIZER_REMEDY,
        )
        return None
    name = type(value).__name__
    if name not in OPTIMIZERS or not type(value).__module__.startswith("keras."):
        bench.findings.add(
            EdlError(
                error_pb2.OPTIMIZER_UNSUPPORTED,
                f"{part.signature} returned {name}, whose update rule the master does not have",
                where=part.where,
                remedy=f"Use one of {', '.join(sorted(OPTIMIZERS))}.",
            )
        )
        return None
    if value.gradient_accumulation_steps:
        bench.findings.add(
            EdlError(
                error_pb2.OPTIMIZER_UNSUPPORTED,
                f"{part.signature} asks for gradient_accumulation_steps="
                f"{value.gradient_accumulation_steps}",
                where=part.where,
                remedy="Leave it out; --update sync with --grads-to-wait does the same.",
            )
        )
        return None
    return value


_OPTIMIZER_REMEDY = "Return a Keras optimizer: tf.keras.optimizers.SGD(0.1)."


def read_loss(
    part: Definition, bench: DefinitionCaller
) -> tuple[BoundFunction | None, Reduction | None]:
    """The loss, and how it reduces a batch where its type tells."""
    value = part.value
    makes_loss = isinstance(value, property) or (
        inspect.isclass(value) and issubclass(value, keras.losses.Loss)
    )
    if not makes_loss and callable(value) and not isinstance(value, keras.losses.Loss):
        known = ROLES["labels"] | ROLES["outputs"]
        names = part.parameters()
        makes_loss = not (known & set(names)) and not part.required()
    if makes_loss:
        value = bench.call(part)
        if value is FAILED:
            return None, None
    if isinstance(value, keras.losses.Loss):
        return BoundFunction(
            part, value, _LOSS_ROLES
        ), "sum" if value.reduction == "sum" else "mean"
    if not callable(value):
        bench.refuse(
            part,
            f"is a {type(value).__name__}, no loss",
            "Write loss(labels, predictions), or return a keras.losses.Loss.",
        )
        return None, None
    inner = Definition(part.role, part.name, value) if makes_loss else part
    function = value if makes_loss else bench.function(part)
    return _bind(inner, function, bench, needs=("labels", "outputs")), None


def read_eval_metrics(
    part: Definition, bench: DefinitionCaller
) -> tuple[dict[str, Any], BoundFunction | None]:
    """Metrics by name, or a function that gives those of a batch."""
    if isinstance(part.value, Mapping):
        returned: Any = part.value
    else:
        names = set(part.parameters())
        if part.name.endswith(".create_metrics") or names & (ROLES["labels"] | ROLES["outputs"]):
            offers = ("outputs", "labels", "mode")
            return {}, _bind(part, bench.function(part), bench, needs=(), offers=offers)
        returned = bench.call(part)
        if returned is FAILED:
            return {}, None

    def bind_metric(metric: Definition) -> BoundFunction:
        return bind(metric, metric.value, needs=("labels", "outputs"), params={})

    try:
        return read_metrics(part, returned, bind_metric), None
    except EdlError as error:
        bench.findings.add(error)
        return {}, None


def read_column_list(part: Definition | None, bench: DefinitionCaller) -> tuple[Column, ...] | None:
    """The columns; None where the model file has none."""
    if part is None:
        return None
    value = part.value
    if callable(value):
        value = bench.call(part)
        if value is FAILED:
            return None
    try:
        return read_columns(part, value)
    except EdlError as error:
        bench.findings.add(error)
        return None


def read_input(
    part: Definition,
    bench: DefinitionCaller,
    features: tuple[Column, ...] | None,
    labels: tuple[Column, ...] | None,
) -> DatasetPipeline | RecordsPipeline | None:
    """The pipeline that an input function is for."""
    if not callable(part.value):
        bench.refuse(
            part,
            f"is a {type(part.value).__name__}, no function",
            "Write dataset_fn(dataset, mode) or input_fn(records).",
        )
        return None
    function = bench.function(part)
    if input_kind(part) == "dataset":
        bound = _bind(
            part, function, bench, needs=("dataset",), offers=("mode", "metadata"), by_position=True
        )
        return DatasetPipeline(bound, bench.zoo.root) if bound else None
    bound = _bind(part, function, bench, needs=("records",), offers=("mode",), by_position=True)
    return RecordsPipeline(bound, bench.zoo.root, features, labels) if bound else None


def _bind(
    part: Definition, function: Callable[..., Any], bench: DefinitionCaller, **how: Any
) -> BoundFunction | None:
    try:
        return bind(part, function, params=bench.params, **how)
    except EdlError as error:
        bench.findings.add(error)
        return None
