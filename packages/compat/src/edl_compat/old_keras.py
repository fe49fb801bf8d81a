"""The Keras of ``tensorflow.python.keras`` as far as model files use it, served by Keras 3.

TensorFlow still contains the old Keras, whose layers do not work in a model of Keras 3.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tensorflow as tf

PACKAGE = "tensorflow.python.keras"

# Old modules whose names are elsewhere in tf.keras; all others have the same name there.
_MOVED = {"engine": "layers", "optimizer_v2": "optimizers", "saving": "models"}


class OldKerasModule(ModuleType):
    """A module of the old Keras; its names come from ``tf.keras``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        first = name.removeprefix(PACKAGE).strip(".").partition(".")[0]
        home = getattr(tf.keras, _MOVED.get(first, first), tf.keras) if first else tf.keras
        self.__dict__["_homes"] = (home, tf.keras)

    def __getattr__(self, name: str) -> Any:
        if name == "accuracy" and self.__name__ == f"{PACKAGE}.metrics":
            return accuracy
        for home in self.__dict__["_homes"]:
            if not name.startswith("__") and hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f"Keras 3 has no {name} of {self.__name__}")


def replacement(name: str) -> str:
    """Return the name to write instead of that of an old module: ``tf.keras.layers``."""
    first = name.removeprefix(PACKAGE).strip(".").partition(".")[0]
    return ".".join(filter(None, ("tf.keras", _MOVED.get(first, first))))


def accuracy(y_true: Any, y_pred: Any) -> tf.Tensor:
    """Return 1.0 where labels and predictions are equal, otherwise 0.0."""
    labels = tf.convert_to_tensor(y_true)
    return tf.cast(tf.equal(labels, tf.cast(y_pred, labels.dtype)), tf.float32)
