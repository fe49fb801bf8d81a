"""What TensorFlow 2 and Keras 3 removed and model files still use, each with one warning.

The names exist only while code of a model file runs (``with served(): ...``): the rest of the
process sees TensorFlow as it is. Whoever uses one is told once where, and what to write instead.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from edl_worker.model_file.zoo.importer import ZooModuleLoader
from edl_worker.tensorflow_internals import optimizer_base_class


class CompatibilityWarning(UserWarning):
    """A model file uses a name that TensorFlow or Keras no longer has."""


_lock = threading.RLock()
_depth = 0
_warned: set[tuple[str, str, int]] = set()

# Global names that the documents' examples use without importing them.
GLOBALS: dict[str, tuple[Any, str]] = {
    "EagerTensor": (type(tf.constant(0)), "tf.Tensor"),
}


@contextmanager
def served() -> Iterator[None]:
    """Runs the body with the removed names in place; reentrant, and shared by all threads."""
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


def served_attribute(owner: Any, name: str) -> bool:
    """Whether ``owner.name`` exists while the names are served."""
    with served():
        return hasattr(owner, name)


def warn(old: str, new: str, place: tuple[str, int] | None = None) -> None:
    """Says that ``old`` is served and ``new`` should be written."""
    say(
        f"{old} is not part of TensorFlow {tf.__version__}; edl serves it here. "
        f"Write {new} instead.",
        place,
    )


def say(text: str, place: tuple[str, int] | None = None) -> None:
    """Warns once per place.

    Args:
        place: file and line; by default the model file's that is being run.
    """
    filename, line = place or _caller()
    if (text, filename, line) not in _warned:
        _warned.add((text, filename, line))
        warnings.warn_explicit(text, CompatibilityWarning, filename, line)


def forget_warnings() -> None:
    """Warns again for a model file that is loaded anew."""
    _warned.clear()


def _caller() -> tuple[str, int]:
    """The nearest place in a model file."""
    frame = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals.get("__loader__"), ZooModuleLoader):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "the model file", 0


_ABSENT = object()


@functools.cache
def _served_names() -> list[tuple[Any, str, Any, Any]]:
    """Owner, name, what it is while names are served, and what it is otherwise."""
    names: list[tuple[Any, str, Any, Any]] = []

    def provide(owner: Any, name: str, value: Any) -> None:
        """What is missing, never what is there."""
        if not hasattr(owner, name):
            names.append((owner, name, value, _ABSENT))

    for name, (make, new) in _OPTIMIZERS.items():
        provide(tf.train, name, _announced(f"tf.train.{name}", new, make))
    provide(tf.train, "Optimizer", keras.optimizers.Optimizer)
    for name, new in _MOVED.items():
        provide(tf, name, _announced(f"tf.{name}", new, _resolve(new)))
    for name, (make, new) in _CASTS.items():
        provide(tf, name, _announced(f"tf.{name}", new, make))
    for module in ("losses", "metrics"):
        for name in _LONG_NAMES:
            new = f"keras.{module}.{name}"
            function = getattr(getattr(keras, module), name)
            provide(getattr(tf.keras, module), name, _announced(f"tf.{new}", new, function))
    provide(tf.Tensor, "flatten", _flatten)
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


def _announced(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
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


def _accepts_lr(original: Callable[..., None]) -> Callable[..., None]:
    """``SGD(lr=0.1)`` for every optimizer."""

    @functools.wraps(original)
    def init(self: Any, learning_rate: Any = 0.001, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            warn(f"{type(self).__name__}(lr=...)", f"{type(self).__name__}(learning_rate=...)")
            learning_rate = kwargs.pop("lr")
        original(self, learning_rate, *args, **kwargs)

    return init


# The optimizers of TensorFlow 1, with its defaults.


def _sgd(learning_rate: Any, use_locking: bool = False, name: str | None = None) -> Any:
    return keras.optimizers.SGD(learning_rate)


def _momentum(
    learning_rate: Any,
    momentum: float,
    use_locking: bool = False,
    name: str | None = None,
    use_nesterov: bool = False,
) -> Any:
    return keras.optimizers.SGD(learning_rate, momentum=momentum, nesterov=use_nesterov)


def _adam(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adam(learning_rate, beta_1=beta1, beta_2=beta2, epsilon=epsilon)


def _adagrad(
    learning_rate: Any,
    initial_accumulator_value: float = 0.1,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adagrad(
        learning_rate, initial_accumulator_value=initial_accumulator_value
    )


def _adadelta(
    learning_rate: Any = 0.001,
    rho: float = 0.95,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adadelta(learning_rate, rho=rho, epsilon=epsilon)


def _rmsprop(
    learning_rate: Any,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    use_locking: bool = False,
    centered: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.RMSprop(
        learning_rate, rho=decay, momentum=momentum, epsilon=epsilon, centered=centered
    )


def _ftrl(
    learning_rate: Any,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Ftrl(
        learning_rate,
        learning_rate_power=learning_rate_power,
        initial_accumulator_value=initial_accumulator_value,
        l1_regularization_strength=l1_regularization_strength,
        l2_regularization_strength=l2_regularization_strength,
    )


_OPTIMIZERS: dict[str, tuple[Callable[..., Any], str]] = {
    "GradientDescentOptimizer": (_sgd, "tf.keras.optimizers.SGD"),
    "MomentumOptimizer": (_momentum, "tf.keras.optimizers.SGD(..., momentum=...)"),
    "AdamOptimizer": (_adam, "tf.keras.optimizers.Adam"),
    "AdagradOptimizer": (_adagrad, "tf.keras.optimizers.Adagrad"),
    "AdadeltaOptimizer": (_adadelta, "tf.keras.optimizers.Adadelta"),
    "RMSPropOptimizer": (_rmsprop, "tf.keras.optimizers.RMSprop"),
    "FtrlOptimizer": (_ftrl, "tf.keras.optimizers.Ftrl"),
}

# Same function, other place.
_MOVED: dict[str, str] = {
    "log": "tf.math.log",
    "div": "tf.math.divide",
    "ceil": "tf.math.ceil",
    "random_normal": "tf.random.normal",
    "random_uniform": "tf.random.uniform",
    "decode_raw": "tf.io.decode_raw",
    "parse_single_example": "tf.io.parse_single_example",
    "parse_example": "tf.io.parse_example",
    "FixedLenFeature": "tf.io.FixedLenFeature",
    "VarLenFeature": "tf.io.VarLenFeature",
    "string_to_number": "tf.strings.to_number",
    "sparse_tensor_to_dense": "tf.sparse.to_dense",
}

# tf.keras has only their short names, keras only these.
_LONG_NAMES = (
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
)

_CASTS: dict[str, tuple[Callable[..., Any], str]] = {
    "to_float": (lambda x, name=None: tf.cast(x, tf.float32), "tf.cast(x, tf.float32)"),
    "to_int32": (lambda x, name=None: tf.cast(x, tf.int32), "tf.cast(x, tf.int32)"),
    "to_int64": (lambda x, name=None: tf.cast(x, tf.int64), "tf.cast(x, tf.int64)"),
}
