"""The optimizer of a model file as the master takes it."""

from __future__ import annotations

from typing import Any

import keras

from edl_worker.engines.tensorflow.internals import uses_weight_decay
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.training.arena import Arena


def describe_optimizers(file: ModelFile, arena: Arena) -> dict[str, Any]:
    """Return the optimizer of a model file as the master takes it.

    If its own training step has several, the others are added as ``others``, each with the names
    of its ``variables``.
    """
    own = file.custom_train_step
    if own is None:
        return describe_optimizer(file.optimizer, arena)
    described = describe_optimizer(file.optimizer, arena, own.untrained)
    if own.others:
        described["others"] = [
            {
                **describe_optimizer(other.optimizer, arena),
                "variables": [w.name for w in arena.weights if w.variable.path in other.variables],
            }
            for other in own.others
        ]
    return described


def describe_optimizer(
    optimizer: keras.optimizers.Optimizer, arena: Arena, untrained: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return an optimizer as Keras serializes it, and what Keras leaves out of that.

    ``exclude_from_weight_decay`` is not part of the optimizer's configuration: the names of the
    excluded variables are added as ``excluded_from_weight_decay``.

    Args:
        untrained: paths of further variables to exclude, which the optimizer never updates.
    """
    try:
        described: dict[str, Any] = dict(keras.optimizers.serialize(optimizer))
    except Exception:  # a class of the user without get_config, which only its workers need
        return {"class_name": type(optimizer).__name__, "config": {}}
    excluded = [
        weight.name
        for weight in arena.weights
        if weight.trainable
        and (weight.variable.path in untrained or not uses_weight_decay(optimizer, weight.variable))
    ]
    if excluded:
        described["excluded_from_weight_decay"] = excluded
    return described


def encode_value(value: Any) -> Any:
    """Return a value of an optimizer's configuration, such as a number of numpy, for JSON."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    return value.item() if hasattr(value, "item") else str(value)
