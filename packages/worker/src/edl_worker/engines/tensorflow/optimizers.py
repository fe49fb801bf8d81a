"""The optimizers of a model file: which variables they update, and how the master gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from edl_worker.engines.tensorflow.internals import (
    inner_optimizers,
    learning_rate_of,
    uses_weight_decay,
)
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.training.arena import Arena

Updates = Sequence[tuple[keras.optimizers.Optimizer, Sequence[keras.Variable]]]


def find_updates(file: ModelFile) -> Updates:
    """Return the optimizers that make an update, each with the variables that it gets."""
    own = file.custom_train_step
    if own is None:
        return [(file.optimizer, file.model.trainable_variables)]
    return own.updates or [(each, ()) for each in own.optimizers]


def build_optimizers(file: ModelFile) -> list[keras.Variable]:
    """Build the optimizers for what they update, as ``fit`` does; return their state.

    The learning rate is not part of it if it can be set.
    """
    updates = find_updates(file)
    optimizers = list({id(optimizer): optimizer for optimizer, _ in updates}.values())
    state: list[keras.Variable] = []
    for optimizer in optimizers:
        updated = {id(v) for each, updated in updates if each is optimizer for v in updated}
        is_compiled = optimizer is getattr(file.model, "optimizer", None)
        trainable = file.model.trainable_variables
        variables = [v for v in trainable if is_compiled or id(v) in updated]
        if variables and not optimizer.built:
            optimizer.build(variables)
        state += optimizer.variables
    inner = inner_optimizers(file.optimizer)
    rate = learning_rate_of(inner[0]) if len(inner) == 1 else None
    return [variable for variable in state if variable is not rate]


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
