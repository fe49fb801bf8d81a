"""Optimizers: an instance, a class, a function or a property."""

from __future__ import annotations

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller

# The update rules that the master has, by the name of the Keras class.
OPTIMIZERS = frozenset(
    (
        *("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop"),
        *("Adamax", "Nadam", "Ftrl", "Lion"),
    )
)
_REMEDY = "Return a Keras optimizer: tf.keras.optimizers.SGD(0.1)."


def adapt_optimizer(definition: Definition, caller: DefinitionCaller) -> keras.optimizers.Optimizer:
    """The optimizer, created once.

    Raises:
        EdlError: MODEL_CONTRACT or OPTIMIZER_UNSUPPORTED.
    """
    value = definition.value
    if not isinstance(value, keras.optimizers.Optimizer):
        if not callable(value) and not isinstance(value, property):
            raise definition.error(f"is a {type(value).__name__}", _REMEDY)
        value = caller.call(definition)
    if not isinstance(value, keras.optimizers.Optimizer):
        raise definition.error(f"returned a {type(value).__name__}, not a Keras optimizer", _REMEDY)
    name = type(value).__name__
    if name not in OPTIMIZERS or not type(value).__module__.startswith("keras."):
        raise _unsupported(
            definition,
            f"returned {name}, whose update rule the master does not have",
            f"Use one of {', '.join(sorted(OPTIMIZERS))}.",
        )
    if value.gradient_accumulation_steps:
        raise _unsupported(
            definition,
            f"asks for gradient_accumulation_steps={value.gradient_accumulation_steps}",
            "Leave it out; --update sync with --grads-to-wait does the same.",
        )
    return value


def _unsupported(definition: Definition, what: str, remedy: str) -> EdlError:
    return EdlError(
        ErrorCode.OPTIMIZER_UNSUPPORTED,
        f"{definition.signature} {what}",
        where=definition.place,
        remedy=remedy,
    )
