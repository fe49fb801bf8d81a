"""Losses: a function, a Keras loss, or something without parameters that returns one of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from edl_worker.model_file.arguments import PARAMETER_NAMES, BoundFunction, Definition, bind
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.description import LossFunction
from edl_worker.tensorflow_internals import convert_with_autograph


def adapt_loss(definition: Definition, caller: DefinitionCaller) -> LossFunction:
    """The loss as a function of ``outputs`` and ``labels``.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    if not _is_factory(definition):
        return _loss_function(definition, caller, caller.function(definition))
    created = caller.call(definition)
    return _loss_function(Definition("loss", definition.name, created), caller, created, definition)


def _is_factory(definition: Definition) -> bool:
    """Whether the definition has to be called to get the loss."""
    value = definition.value
    if isinstance(value, property):
        return True
    if inspect.isclass(value) and issubclass(value, keras.losses.Loss):
        return True
    if isinstance(value, keras.losses.Loss) or not callable(value):
        return False
    known = PARAMETER_NAMES["labels"] | PARAMETER_NAMES["outputs"]
    return not (known & set(definition.parameters())) and not definition.required_names()


def _loss_function(
    loss: Definition,
    caller: DefinitionCaller,
    function: Callable[..., Any],
    factory: Definition | None = None,
) -> LossFunction:
    written = factory or loss
    if isinstance(loss.value, keras.losses.Loss):
        keras_loss = loss.value
        return LossFunction(
            lambda *, outputs, labels: keras_loss(y_true=labels, y_pred=outputs),
            "sum" if keras_loss.reduction == "sum" else "mean",
            written.signature,
            written.place,
        )
    if not callable(loss.value):
        raise written.error(
            f"is a {type(loss.value).__name__}, not a loss",
            "Write loss(labels, predictions), or return a keras.losses.Loss.",
        )
    bound = bind(loss, function, required=("labels", "outputs"), params=caller.params)
    return LossFunction(_BranchingLoss(bound), None, loss.signature, loss.place)


class _BranchingLoss:
    """Calls a loss as it is written, and translates it if it branches on a tensor."""

    def __init__(self, bound: BoundFunction) -> None:
        self._bound = bound

    def __call__(self, *, outputs: Any, labels: Any) -> Any:
        try:
            return self._bound(outputs=outputs, labels=labels)
        except tf.errors.OperatorNotAllowedInGraphError:
            function = self._bound.function
            if not inspect.isroutine(function):
                raise
            self._bound = BoundFunction(
                self._bound.definition,
                convert_with_autograph(function),
                self._bound.arguments,
                self._bound.constants,
            )
            return self._bound(outputs=outputs, labels=labels)
