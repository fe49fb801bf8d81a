"""Objects of Keras 2, which do not fit together with those of Keras 3: names them in messages."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Keras 2 is a package of its own, and a part of TensorFlow.
_PACKAGES = ("tf_keras", "tensorflow.python.keras")

_DEPTH, _PARTS = 2, 50

REMEDY = (
    "Objects of tf_keras (Keras 2) and of Keras 3 do not fit together: import keras, and take all "
    "of them from there, or from tf.keras without TF_USE_LEGACY_KERAS."
)


def package_of(kind: type) -> str:
    """Return the package of Keras 2 that a class, or a base of it, is from; empty for others."""
    modules = [f"{base.__module__}." for base in kind.__mro__]
    return next((p for p in _PACKAGES for each in modules if each.startswith(f"{p}.")), "")


def find_mixture(error: BaseException) -> str:
    """Return the object of Keras 2 that met Keras 3 where an error was raised; empty: none did."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", "")) + "."
        if not module.startswith(("keras.", *(f"{package}." for package in _PACKAGES))):
            continue
        values = list(parts_of(frame.f_locals))
        of_keras_2 = [value for value in values if package_of(type(value))]
        if of_keras_2 and (module.startswith("keras.") or any(map(_is_keras_3, values))):
            return _name(of_keras_2)
    return ""


def parts_of(named: Mapping[str, Any]) -> Iterator[Any]:
    """Yield local variables or attributes, and what their lists, tuples and dictionaries have.

    A few of each are enough, and other objects that are like them may do anything when asked.
    """
    waiting = deque((value, 0) for value in list(named.values()))
    while waiting:
        value, depth = waiting.popleft()
        yield value
        found = list(value.values()) if isinstance(value, dict) else value
        if isinstance(found, list | tuple) and depth < _DEPTH:
            waiting.extend((part, depth + 1) for part in found[:_PARTS])


def _is_keras_3(value: Any) -> bool:
    return any(base.__module__.startswith("keras.") for base in type(value).__mro__)


def _name(values: Iterable[Any]) -> str:
    """Return the first object with its package; a tensor only if there is nothing else."""
    named = [(type(value).__name__, package_of(type(value))) for value in values]
    kind, package = min(named, key=lambda each: "Tensor" in each[0], default=("", ""))
    return f"{kind} of {package} (Keras 2)" if kind else ""
