"""The names that Keras gives to losses, optimizers and metrics, such as ``mse``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from edl_worker.model_file.arguments import Role
from edl_worker.model_file.known_names import did_you_mean

# Role to what finds the object that a name stands for.
_FINDERS: dict[Role, Callable[[str], Any]] = {
    "loss": keras.losses.get,
    "optimizer": keras.optimizers.get,
    "eval_metrics_fn": keras.metrics.get,
}


# Role to the module with the objects, and short names of them.
_MODULES: dict[Role, tuple[Any, tuple[str, ...]]] = {
    "loss": (keras.losses, ("mse", "mae", "mape", "msle", "bce", "crossentropy")),
    "optimizer": (keras.optimizers, ()),
    "eval_metrics_fn": (keras.metrics, ("accuracy", "acc", "mse", "mae", "bce", "crossentropy")),
}


def suggest_name(role: Role, name: str) -> str | None:
    """Return "Did you mean …?" for a name that Keras does not have; None: none is near."""
    module, short = _MODULES[role]
    is_camel = name[:1].isupper()
    names = [
        each
        for each in dir(module)
        if not each.startswith("_") and (each[0].isupper() == is_camel or role == "optimizer")
    ]
    if role == "optimizer" and not is_camel:
        names = [each.lower() for each in names]
    if role == "eval_metrics_fn" and not is_camel:
        classes = [each for each in dir(module) if each[0].isupper()]
        names += filter(partial(is_known_to_keras, role), map(_in_snake_case, classes))
    return did_you_mean(name, [*short, *names])


def _in_snake_case(name: str) -> str:
    """Return the name of a class as Keras takes it in a text: ``true_positives``, ``auc``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def is_known_to_keras(role: Role, name: str) -> bool:
    """Return whether Keras has a loss, optimizer or metric of this name.

    Names such as ``accuracy`` stand for several metrics; the outputs of the model decide.
    """
    if name.lower() in ("accuracy", "acc", "crossentropy", "ce"):
        return True
    try:
        _FINDERS[role](name)
    except (ValueError, TypeError):  # TypeError: its class needs arguments
        return False
    return True
