"""The shelf of old names: what TensorFlow, Keras and ElasticDL once had, for old model files.

It plugs into ``model_file.zoo.compatibility`` by an entry point.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from edl_compat import removed_names
from edl_compat.old_modules import OldModules
from edl_worker.engines.tensorflow.internals import (
    UnsupportedVersion,
    handle_keras_tensors,
    optimizer_base_class,
)
from edl_worker.model_file.zoo.compatibility import are_names_provided, warn_once

# Keras 2 is a package of its own, and a part of TensorFlow.
_OLD_KERAS = "tensorflow.python.keras"
_KERAS_2 = ("tf_keras.", f"{_OLD_KERAS}.")
_ABSENT = object()


class Shelf:
    """The ``CompatibilityShelf`` of this package."""

    def serve_modules(self) -> None:
        """Let imports find the modules of ElasticDL in this process from now on."""
        OldModules.serve()

    def put_names(self) -> None:
        """Put the removed names of TensorFlow and Keras in place."""
        for owner, name, value, _ in _served_names():
            setattr(owner, name, value)

    def take_names(self) -> None:
        """Undo ``put_names``."""
        for owner, name, _, original in _served_names():
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def old_module(self, name: str) -> ModuleType | None:
        """Return a module of the Keras that TensorFlow once contained, with names of Keras 3."""
        if name != _OLD_KERAS and not name.startswith(f"{_OLD_KERAS}."):
            return None
        from edl_compat import old_keras

        new = old_keras.replacement(name)
        warn_once(
            f"{name} is not the Keras in use; edl provides the names of {new}. Write {new} instead."
        )
        return old_keras.OldKerasModule(name)

    def provide_global(self, name: str, names: dict[str, Any], place: tuple[str, int]) -> bool:
        """Define a global name that the design documents use without importing it."""
        if name not in removed_names.GLOBALS:
            return False
        names[name], new = removed_names.GLOBALS[name]
        _warn(name, new, place)
        return True

    def is_of_keras_2(self, kind: type) -> bool:
        """Return whether a class comes from Keras 2, or inherits from a class of it."""
        return any(base.__module__.startswith(_KERAS_2) for base in kind.__mro__)

    def to_keras_3(self, value: Any) -> Any:
        """Return a model, optimizer or metric of Keras 2 as one of Keras 3; others as they are.

        Raises:
            ValueError: a model has no inputs yet.
        """
        if not self.is_of_keras_2(type(value)):
            return value
        from edl_compat.keras_2 import convert_to_keras_3

        return convert_to_keras_3(value)

    def is_old_callback(self, callback: Any) -> bool:
        """Return whether a callback is one of ElasticDL's, which have no hook."""
        # Not imported: the module is there only if the model file has imported it.
        return type(callback).__module__ == f"{__package__}.callbacks"

    def version_schedule(self, schedule: Callable[[int], Any]) -> Any:
        """Return a learning rate by parameter version as a Keras schedule."""
        from edl_compat.version_schedule import steps_of

        return steps_of(schedule)


def _warn(old: str, new: str, place: tuple[str, int] | None = None) -> None:
    """Warn that a model file uses ``old`` and should use ``new``."""
    warn_once(
        f"{old} is not part of TensorFlow {tf.__version__}; edl provides it here. "
        f"Write {new} instead.",
        place,
    )


@functools.cache
def _served_names() -> list[tuple[Any, str, Any, Any]]:
    """Return owner and name, and the value while names are served and otherwise."""
    names: list[tuple[Any, str, Any, Any]] = []
    # `from tensorflow.keras.layers import ...` makes a module of its own, and tf.keras.layers is
    # that module from then on.
    for module in ("layers", "losses", "metrics"):
        importlib.import_module(f"tensorflow.keras.{module}")

    def provide(owner: Any, name: str, value: Any) -> None:
        """Add a name, unless it exists."""
        if not hasattr(owner, name):
            names.append((owner, name, value, _ABSENT))

    for name, (make, new) in removed_names.OPTIMIZERS.items():
        provide(tf.train, name, _with_warning(f"tf.train.{name}", new, make))
    provide(tf.train, "Optimizer", keras.optimizers.Optimizer)
    for name, new in removed_names.MOVED.items():
        provide(tf, name, _with_warning(f"tf.{name}", new, _resolve(new)))
    for name, (make, new) in removed_names.CASTS.items():
        provide(tf, name, _with_warning(f"tf.{name}", new, make))
    for module in ("losses", "metrics"):
        for name in removed_names.LONG_NAMES:
            new = f"keras.{module}.{name}"
            function = getattr(getattr(keras, module), name)
            provide(getattr(tf.keras, module), name, _with_warning(f"tf.{new}", new, function))
    provide(tf.Tensor, "flatten", _flatten)
    new = "Keras preprocessing layers"
    dense_features = _with_warning("tf.keras.layers.DenseFeatures", new, _dense_features)
    provide(tf.keras.layers, "DenseFeatures", dense_features)
    provide(keras.layers, "DenseFeatures", dense_features)
    with suppress(UnsupportedVersion):  # then TensorFlow's own error says what is wrong
        handle_keras_tensors(_on_keras_tensors)
    names += [
        (keras.Model, name, value, getattr(keras.Model, name))
        for name, value in _STEPS_OF_KERAS_2.items()
        if hasattr(keras.Model, name)
    ]
    base = optimizer_base_class()
    names.append((base, "__init__", _accepts_lr(base.__init__), base.__init__))
    return names


def _with_warning(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _warn(old, new)
        return function(*args, **kwargs)

    return call


def _resolve(dotted: str) -> Any:
    return functools.reduce(getattr, dotted.split(".")[1:], tf)


def _flatten(self: Any) -> Any:
    _warn("Tensor.flatten()", "tf.reshape(tensor, [-1])")
    return tf.reshape(self, [-1])


def _dense_features(*args: Any, **kwargs: Any) -> Any:
    from edl_compat.feature_columns import DenseFeatures

    return DenseFeatures(*args, **kwargs)


def _on_keras_tensors(operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the result of an operation on Keras tensors; None outside of model files."""
    if not are_names_provided():
        return None
    from edl_compat.keras_tensors import apply

    warn_once(
        "TensorFlow operations do not take Keras tensors; edl wraps the operation in a layer. "
        "Write keras.ops instead."
    )
    return apply(operation, args, kwargs)


def _compiled_loss(
    self: keras.Model, y: Any, y_pred: Any, sample_weight: Any = None, **ignored: Any
) -> Any:
    """Return the loss, and count it as Keras 2 did: what Keras 3 has under this name does not."""
    loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=sample_weight)
    for metric in self.metrics:
        if metric.name == "loss":
            metric.update_state(loss)
    return loss


class _CompiledMetrics:
    """The metrics of ``compile``: those of Keras 3 under this name count outputs as losses."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
        for metric in self._model.metrics:
            if metric.name != "loss":
                metric.update_state(y, y_pred, sample_weight=sample_weight)


_STEPS_OF_KERAS_2 = {
    "compiled_loss": _compiled_loss,
    "compiled_metrics": property(_CompiledMetrics),
}
"""What a train_step or test_step of Keras 2 uses."""


def _accepts_lr(original: Callable[..., None]) -> Callable[..., None]:
    """Let every optimizer take ``lr``, as in ``SGD(lr=0.1)``."""

    @functools.wraps(original)
    def init(self: Any, learning_rate: Any = 0.001, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            _warn(f"{type(self).__name__}(lr=...)", f"{type(self).__name__}(learning_rate=...)")
            learning_rate = kwargs.pop("lr")
        original(self, learning_rate, *args, **kwargs)

    return init
