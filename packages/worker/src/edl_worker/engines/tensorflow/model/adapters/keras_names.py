"""The names that Keras gives to losses, optimizers and metrics, such as ``mse``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from edl_worker.model_file.arguments import Role

# Role to what finds the object that a name stands for.
_FINDERS: dict[Role, Callable[[str], Any]] = {
    "loss": keras.losses.get,
    "optimizer": keras.optimizers.get,
    "eval_metrics_fn": keras.metrics.get,
}


def is_known_to_keras(role: Role, name: str) -> bool:
    """Return whether Keras has a loss, optimizer or metric of this name.

    Names such as ``accuracy`` stand for several metrics; the outputs of the model decide.
    """
    if name.lower() in ("accuracy", "acc", "crossentropy", "ce"):
        return True
    try:
        _FINDERS[role](name)
    except ValueError:
        return False
    return True
