"""The optimizer in Keras's file of a trained model, so that ``fit`` continues the training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np

from edl_worker.core.step_engine import OptimizerState
from edl_worker.engines.tensorflow.internals import optimizer_slots
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.model_file.framework_types import is_of_keras

_MOMENTS = {"momentum": "_momentums", "velocity": "_velocities"}
_SLOTS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"momentum": "momentums"},
    "Adam": {**_MOMENTS, "velocity_hat": "_velocity_hats"},
    "AdamW": {**_MOMENTS, "velocity_hat": "_velocity_hats"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adadelta": {
        "accumulated_grad": "_accumulated_grads",
        "accumulated_delta_var": "_accumulated_delta_vars",
    },
    "RMSprop": {**_MOMENTS, "average_gradient": "_average_gradients"},
    "Adamax": {"momentum": "_m", "norm": "_u"},
    "Nadam": _MOMENTS,
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
    "Lion": {"momentum": "_momentums"},
}
"""By Keras's class, the master's slots that lie as the values do, and what Keras calls them."""

_MAX_DECAYS = 100_000
"""Factors after which the product that Nadam remembers is 0."""


def find_slots(file: ModelFile) -> list[str] | None:
    """Return the master's slots that the saved optimizer needs; None: none can be saved.

    Not saved are the optimizers of a ``train_step`` of the model's own, those that average the
    values, and those whose state the master keeps in another form than Keras.
    """
    if file.custom_train_step is not None or type(file.model).compile is not keras.Model.compile:
        return None
    kind = type(file.optimizer)
    if kind.__name__ not in _SLOTS or not is_of_keras(kind) or file.optimizer.use_ema:
        return None
    config = file.optimizer.get_config()
    unused = {
        "momentum": kind.__name__ in ("SGD", "RMSprop") and not config.get("momentum"),
        "velocity_hat": not config.get("amsgrad"),
        "average_gradient": not config.get("centered"),
    }
    return [name for name in _SLOTS[kind.__name__] if not unused.get(name)]


def with_restored_optimizer(
    file: ModelFile, arena: Arena, state: OptimizerState | None
) -> AbstractContextManager[None]:
    """Let Keras save a model with a copy of its optimizer that stands where the master's does.

    Args:
        file: the model.
        arena: its weights.
        state: of the optimizer; None: the model is saved without one.
    """
    if state is None:
        return nullcontext()
    return _with_optimizer(file, _restore(file.optimizer, file.model, arena, state))


def with_own_optimizer(file: ModelFile) -> AbstractContextManager[None]:
    """Let Keras save a model with its own optimizer as it is, which has made all updates."""
    if file.custom_train_step is not None:
        return nullcontext()  # the model is compiled with what Keras can save
    return _with_optimizer(file, file.optimizer)


@contextmanager
def _with_optimizer(file: ModelFile, optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let Keras save a model as if ``fit`` had trained it; the model itself stays as it is.

    Loss and metrics are saved only if ``keras.models.load_model`` finds them without the model
    file.
    """
    model = file.model
    config = model.get_compile_config() if model.compiled else _compile_config(file)
    config = {**config, "optimizer": keras.saving.serialize_keras_object(optimizer)}
    # Not by setattr, for Keras and TensorFlow would track the optimizer and write it everywhere.
    hidden = {"optimizer": optimizer, "get_compile_config": lambda: config}
    before = {name: vars(model)[name] for name in hidden if name in vars(model)}
    vars(model).update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del vars(model)[name]
        vars(model).update(before)


def _restore(
    of: keras.optimizers.Optimizer, model: keras.Model, arena: Arena, state: OptimizerState
) -> keras.optimizers.Optimizer:
    """Return a copy of an optimizer that stands where the master's does."""
    optimizer = type(of).from_config(of.get_config())
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(state.updates)
    if state.learning_rate is not None:
        optimizer.learning_rate = state.learning_rate
    names = _SLOTS[type(of).__name__]
    places = {id(variable): at for at, variable in enumerate(model.trainable_variables)}
    for slot, payload in state.slots.items():
        if not slot:
            continue
        kept = optimizer_slots(optimizer, names[slot])
        for group, values in zip(arena.groups, arena.views(payload), strict=True):
            if group.trainable:
                parts = np.split(values, np.cumsum(group.sizes)[:-1])
                for weight, part in zip(group.weights, parts, strict=True):
                    kept[places[id(weight.variable)]].assign(part.reshape(weight.shape))
    if isinstance(optimizer, keras.optimizers.Nadam):
        decays = (1 - 0.5 * 0.96**step for step in range(1, min(state.updates, _MAX_DECAYS) + 1))
        product = math.prod(optimizer.beta_1 * decay for decay in decays)
        optimizer_slots(optimizer, "_u_product").assign(product)
    return optimizer


def _compile_config(file: ModelFile) -> dict[str, Any]:
    """Return the arguments of ``compile`` that need no code of the model file."""
    loss, metrics = file.compile_arguments
    if not loss or not _can_load(loss):
        return {}
    arguments = {**loss, **(metrics if _can_load(metrics) else {})}
    given = {name: value for name, value in arguments.items() if value is not None}
    config: dict[str, Any] = keras.saving.serialize_keras_object(given)
    return config


def _can_load(arguments: Mapping[str, Any]) -> bool:
    return all(
        each is None
        or isinstance(each, str | int | float)
        or is_of_keras(each if inspect.isroutine(each) or inspect.isclass(each) else type(each))
        for each in keras.tree.flatten(dict(arguments))
    )
