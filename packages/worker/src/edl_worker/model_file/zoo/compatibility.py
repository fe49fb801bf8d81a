"""Provides removed names of TensorFlow and Keras to model files, each with one warning.

The names exist only in a block ``with removed_names_provided():``, which surrounds all code of a
model file. The rest of the process sees TensorFlow as it is. A warning names the line and what to
write instead.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from edl_worker.model_file.zoo import removed_names
from edl_worker.model_file.zoo.module_loaders import ZooModuleLoader
from edl_worker.tensorflow_internals import (
    UnsupportedVersion,
    handle_keras_tensors,
    optimizer_base_class,
)


class CompatibilityWarning(UserWarning):
    """A model file uses a name that TensorFlow or Keras has removed."""


# Keras 2 is a package of its own, and a part of TensorFlow.
_KERAS_2 = ("tf_keras.", "tensorflow.python.keras.")

_lock = threading.RLock()
_depth = 0
_warned: set[tuple[str, str, int]] = set()


@contextmanager
def removed_names_provided() -> Iterator[None]:
    """Runs the block with the removed names in place; reentrant, and shared by all threads."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _remove()


def provides(owner: Any, name: str) -> bool:
    """Whether ``owner.name`` exists while the names are served."""
    with removed_names_provided():
        return hasattr(owner, name)


def warn(old: str, new: str, place: tuple[str, int] | None = None) -> None:
    """Warns that a model file uses ``old`` and should use ``new``."""
    warn_once(
        f"{old} is not part of TensorFlow {tf.__version__}; edl provides it here. "
        f"Write {new} instead.",
        place,
    )


def warn_once(text: str, place: tuple[str, int] | None = None) -> None:
    """Warns once per place.

    Args:
        place: file and line; by default those of the model file's code that is running.
    """
    filename, line = place or _caller()
    if (text, filename, line) not in _warned:
        _warned.add((text, filename, line))
        warnings.warn_explicit(text, CompatibilityWarning, filename, line)


def is_of_keras_2(kind: type) -> bool:
    """Whether a class comes from Keras 2, or inherits from a class of it."""
    return any(base.__module__.startswith(_KERAS_2) for base in kind.__mro__)


def of_keras_3(value: Any) -> Any:
    """A model, optimizer or metric of Keras 2 as one of Keras 3; anything else as it is.

    Raises:
        ValueError: a model has no inputs yet.
    """
    if not is_of_keras_2(type(value)):
        return value
    from edl_worker.model_file.legacy.keras_2 import converted

    return converted(value)


def forget_warnings() -> None:
    """Forgets which warnings were shown, before a model file is loaded again."""
    _warned.clear()


def _caller() -> tuple[str, int]:
    """File and line of the innermost frame of a model file."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals.get("__loader__"), ZooModuleLoader):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "the model file", 0


_ABSENT = object()


@functools.cache
def _served_names() -> list[tuple[Any, str, Any, Any]]:
    """Owner, name, value while names are served, and value otherwise."""
    names: list[tuple[Any, str, Any, Any]] = []
    # `from tensorflow.keras.layers import ...` makes a module of its own, and tf.keras.layers is
    # that module from then on.
    for module in ("layers", "losses", "metrics"):
        importlib.import_module(f"tensorflow.keras.{module}")

    def provide(owner: Any, name: str, value: Any) -> None:
        """Never replaces a name that exists."""
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
    base = optimizer_base_class()
    names.append((base, "__init__", _accepts_lr(base.__init__), base.__init__))
    return names


def _install() -> None:
    for owner, name, value, _ in _served_names():
        setattr(owner, name, value)


def _remove() -> None:
    for owner, name, _, original in _served_names():
        if original is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def _with_warning(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warn(old, new)
        return function(*args, **kwargs)

    return call


def _resolve(dotted: str) -> Any:
    return functools.reduce(getattr, dotted.split(".")[1:], tf)


def _flatten(self: Any) -> Any:
    warn("Tensor.flatten()", "tf.reshape(tensor, [-1])")
    return tf.reshape(self, [-1])


def _dense_features(*args: Any, **kwargs: Any) -> Any:
    from edl_worker.model_file.legacy.feature_columns import DenseFeatures

    return DenseFeatures(*args, **kwargs)


def _on_keras_tensors(operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What an operation of TensorFlow gives for Keras tensors; None outside of model files."""
    if _depth == 0:
        return None
    from edl_worker.model_file.legacy.keras_tensors import apply

    warn_once(
        "TensorFlow operations do not take Keras tensors; edl wraps the operation in a layer. "
        "Write keras.ops instead."
    )
    return apply(operation, args, kwargs)


def _accepts_lr(original: Callable[..., None]) -> Callable[..., None]:
    """``SGD(lr=0.1)`` for every optimizer."""

    @functools.wraps(original)
    def init(self: Any, learning_rate: Any = 0.001, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            warn(f"{type(self).__name__}(lr=...)", f"{type(self).__name__}(learning_rate=...)")
            learning_rate = kwargs.pop("lr")
        original(self, learning_rate, *args, **kwargs)

    return init
