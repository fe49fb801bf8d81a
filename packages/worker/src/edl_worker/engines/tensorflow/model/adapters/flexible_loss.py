"""Calls losses of model files as written, and where that fails as Keras calls them."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import convert_with_autograph
from edl_worker.model_file.arguments import BoundFunction

_MIXED = (TypeError, tf.errors.InvalidArgumentError)
"""What TensorFlow raises about an operation on whole numbers and fractions."""


class FlexibleLoss:
    """A loss that is called as written, and translated if it branches on a tensor.

    Whole numbers as labels stay whole, for a loss that looks classes up. If it cannot compute with
    them, it gets them as fractions, as from the ``fit`` of Keras.
    """

    def __init__(self, bound: BoundFunction) -> None:
        self._bound = bound
        self._casts = False

    def __call__(self, *, outputs: Any, labels: Any) -> Any:
        try:
            return self._call(outputs, labels)
        except tf.errors.OperatorNotAllowedInGraphError:
            function = self._bound.function
            if not inspect.isroutine(function):
                raise
            self._bound = BoundFunction(
                self._bound.definition,
                convert_with_autograph(function),
                self._bound.arguments,
                self._bound.constants,
            )
            return self._call(outputs, labels)

    def _call(self, outputs: Any, labels: Any) -> Any:
        if self._casts:
            labels = _as_fractions(labels)
        try:
            return self._bound(outputs=outputs, labels=labels)
        except _MIXED as error:
            if self._casts or not _has_integers(labels):
                raise
            try:
                value = self._bound(outputs=outputs, labels=_as_fractions(labels))
            except Exception:  # of the user: the first one says more
                raise error from None
            self._casts = True
            return value


def _has_integers(labels: Any) -> bool:
    return any(isinstance(x, tf.Tensor) and x.dtype.is_integer for x in tf.nest.flatten(labels))


def _as_fractions(labels: Any) -> Any:
    def cast(each: Any) -> Any:
        is_integer = isinstance(each, tf.Tensor) and each.dtype.is_integer
        return tf.cast(each, tf.float32) if is_integer else each

    return tf.nest.map_structure(cast, labels)
