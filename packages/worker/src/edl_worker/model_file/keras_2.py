"""Objects of Keras 2, which do not fit together with those of Keras 3: names them in messages."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from edl_worker.model_file.framework_types import leaves

# Keras 2 is a package of its own, and a part of TensorFlow.
_PACKAGES = ("tf_keras", "tensorflow.python.keras")

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
        values = list(leaves(list(frame.f_locals.values())))
        module = str(frame.f_globals.get("__name__", "")) + "."
        of_keras_2 = [value for value in values if package_of(type(value))]
        if module.startswith("keras.") and of_keras_2:
            return _name(of_keras_2)
        if module.startswith(tuple(f"{p}." for p in _PACKAGES)) and any(map(_is_keras_3, values)):
            return _name(of_keras_2)
    return ""


def _is_keras_3(value: Any) -> bool:
    return any(base.__module__.startswith("keras.") for base in type(value).__mro__)


def _name(values: Iterable[Any]) -> str:
    """Return the first object with its package; a tensor only if there is nothing else."""
    named = [(type(value).__name__, package_of(type(value))) for value in values]
    kind, package = min(named, key=lambda each: "Tensor" in each[0], default=("", ""))
    return f"{kind} of {package} (Keras 2)" if kind else ""
