"""Losses: a function, a Keras loss or its name, a loss for each output, or what returns one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import compiled_loss
from edl_worker.engines.tensorflow.model.adapters.flexible_loss import FlexibleLoss
from edl_worker.engines.tensorflow.model.adapters.keras_names import suggest_name
from edl_worker.engines.tensorflow.model.description import LossFunction
from edl_worker.model_file.arguments import PARAMETER_NAMES, Definition, bind
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.framework_types import is_of_keras

_BY_SHAPE = ("crossentropy", "ce")
"""Names that Keras resolves when it sees labels and outputs."""

_NAMES = "Use a name of keras.losses (mse, mae, sparse_categorical_crossentropy), or a function."


def adapt_loss(
    definition: Definition,
    caller: DefinitionCaller,
    loss_weights: Any = None,
    output_names: Sequence[str] = (),
) -> LossFunction:
    """Return the loss as a function of ``outputs``, ``labels`` and ``weights``.

    Args:
        loss_weights: what each of several losses counts, as in ``model.compile``.
        output_names: of the model; empty if it has none.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    written, value = definition, definition.value
    if _is_factory(definition):
        value = caller.call(definition)
        definition = Definition("loss", definition.name, value)
    if isinstance(value, keras.metrics.Metric):
        raise written.error(
            f"is {type_with_article(value)}, a metric",
            "Give a loss of keras.losses, and the metric in metrics = [...].",
        )
    if isinstance(value, str | Mapping | list | tuple) or loss_weights is not None:
        return _keras_loss(written, value, loss_weights, output_names)
    function = value if written is not definition else caller.function(definition)
    return _loss_function(definition, caller, function, written)


def _is_factory(definition: Definition) -> bool:
    """Whether the definition has to be called to get the loss."""
    value = definition.value
    if isinstance(value, property):
        return True
    if inspect.isclass(value) and issubclass(value, keras.losses.Loss):
        return True
    if isinstance(value, keras.losses.Loss | keras.metrics.Metric) or not callable(value):
        return False
    known = PARAMETER_NAMES["labels"] | PARAMETER_NAMES["outputs"]
    return not (known & set(definition.parameters())) and not definition.required_names()


def _loss_function(
    loss: Definition,
    caller: DefinitionCaller,
    function: Callable[..., Any],
    written: Definition,
) -> LossFunction:
    if isinstance(loss.value, keras.losses.Loss):
        keras_loss = loss.value
        return LossFunction(
            lambda *, outputs, labels, weights=None: keras_loss(
                labels, outputs, sample_weight=weights
            ),
            "sum" if keras_loss.reduction == "sum" else "mean",
            written.signature,
            written.place,
            {"loss": keras_loss},
        )
    if not callable(loss.value):
        raise written.error(
            f"is {type_with_article(loss.value)}, not a loss",
            "Write loss(labels, predictions), or return a keras.losses.Loss.",
        )
    if made := _find_made_loss(loss):
        settings = ", ".join(f"{each}=..." for each in loss.required_names())
        call = f"{loss.value.__name__}({settings})"
        raise written.error(
            f"makes a loss, {made}, and is none itself",
            f"Call it in the model file: loss = {call}.",
        )
    bound = bind(loss, function, required=("labels", "outputs"), params=caller.params)
    branching = FlexibleLoss(bound)
    return LossFunction(
        _Weighted(branching, loss),
        None,
        loss.signature,
        loss.place,
        {
            "loss": loss.value
            if is_of_keras(loss.value)
            else lambda y_true, y_pred: branching(outputs=y_pred, labels=y_true)
        },
    )


def _find_made_loss(loss: Definition) -> str:
    """Return the loss that a function defines inside, if it takes neither labels nor outputs."""
    known = PARAMETER_NAMES["labels"] | PARAMETER_NAMES["outputs"]
    if not inspect.isfunction(loss.value) or known & set(loss.parameters()):
        return ""
    for each in loss.value.__code__.co_consts:
        if not inspect.iscode(each):
            continue
        names = each.co_varnames[: each.co_argcount]
        if len(names) > 1 and known & set(names):
            return f"{each.co_name}({', '.join(names)})"
    return ""


def _keras_loss(
    written: Definition, value: Any, loss_weights: Any, output_names: Sequence[str]
) -> LossFunction:
    """Return a loss that ``model.compile`` would take, which has the same value there."""
    for each in keras.tree.flatten(value):
        if not isinstance(each, str) or each.lower() in _BY_SHAPE:
            continue
        try:
            keras.losses.get(each)
        except ValueError:
            what = f"names {each!r}, a loss that Keras does not have"
            raise written.error(what, suggest_name("loss", each) or _NAMES) from None
    _check_outputs(written, "loss", value, output_names)
    _check_outputs(written, "loss_weights", loss_weights, output_names)
    made = compiled_loss(value, loss_weights, output_names)
    reductions = {getattr(each, "reduction", "mean") for each in keras.tree.flatten(value)}
    return LossFunction(
        lambda *, outputs, labels, weights=None: made(labels, outputs, weights),
        "sum" if reductions == {"sum"} else "mean",
        written.signature,
        written.place,
        {"loss": value, "loss_weights": loss_weights},
    )


def _check_outputs(written: Definition, name: str, value: Any, output_names: Sequence[str]) -> None:
    """Check that a value has a part for each output of the model.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    outputs = ", ".join(output_names)
    unknown = set(value) - set(output_names) if isinstance(value, Mapping) else set()
    if output_names and unknown:
        raise written.error(
            f"names {', '.join(sorted(map(repr, unknown)))}"
            + (f" in {name}" if name != "loss" else "")
            + f", but the outputs of the model are {outputs}",
            f"Use the names of the outputs as the keys of {name}.",
        )
    is_by_name = isinstance(value, Mapping) and bool(value)
    lacking = [each for each in output_names if each not in value] if is_by_name else []
    if name == "loss" and lacking:
        raise written.error(
            f"has no loss for the output {', '.join(lacking)}",
            "Give each output a loss; None if it has none.",
        )
    is_list = isinstance(value, list | tuple) and len(output_names) > 0
    if is_list and len(value) != len(output_names):
        raise written.error(
            f"has {len(value)} parts in {name}, and the model has {len(output_names)} outputs "
            f"({outputs})",
            "Write one for each output, in their order, or a dictionary by their names.",
        )


class _Weighted:
    """A weighted form of a loss function for examples that all count the same.

    As in Keras, the mean is over the examples and not over their weights.
    """

    def __init__(self, loss: Callable[..., Any], definition: Definition) -> None:
        self._loss = loss
        self._definition = definition

    def __call__(self, *, outputs: Any, labels: Any, weights: Any = None) -> Any:
        values = self._loss(outputs=outputs, labels=labels)
        if weights is None:
            return values
        values = tf.convert_to_tensor(values)
        if values.shape.rank == 0 or tf.nest.is_nested(weights):
            raise self._definition.error(
                "returns one value for the whole minibatch, to which weights of samples or classes "
                "cannot apply"
                if values.shape.rank == 0
                else "gets several sample weights per example",
                "Return one value per example, and yield one weight per example.",
            )
        weights = tf.cast(tf.reshape(weights, [-1] + [1] * (values.shape.rank - 1)), values.dtype)
        return values * weights
