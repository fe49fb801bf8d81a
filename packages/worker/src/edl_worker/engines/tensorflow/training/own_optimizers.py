"""The optimizers of a model file, and which variables they update."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from edl_worker.engines.tensorflow.internals import inner_optimizers, learning_rate_of
from edl_worker.engines.tensorflow.model import ModelFile

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
