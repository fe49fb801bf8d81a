"""Refuses categories beyond those that a ``CategoryEncoding`` has, of which Keras makes zeros."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from edl_worker.model_file.known_errors import CATEGORIES

_checks: ContextVar[bool] = ContextVar("checks", default=False)


@contextmanager
def check_categories(*, checks: bool = True) -> Iterator[None]:
    """Make layers check categories while they are called or traced in this context."""
    _change_layer()
    token = _checks.set(checks)
    try:
        yield
    finally:
        _checks.reset(token)


@functools.cache
def _change_layer() -> None:
    """Make the layer of Keras check what it gets, once in a process."""
    kind: Any = keras.layers.CategoryEncoding
    call = kind.call

    @functools.wraps(call)
    def check_and_call(self: Any, inputs: Any, count_weights: Any = None) -> Any:
        if _checks.get():
            inputs = _look_up(inputs, self.num_tokens, self.name)
        return call(self, inputs, count_weights)

    kind.call = check_and_call


def _look_up(inputs: Any, count: int, layer: str) -> Any:
    """Return the same categories; TensorFlow raises as for an id without a row of a table.

    An assertion of its own would run in each step. This is a lookup in a table of zeros.
    """
    if isinstance(inputs, tf.RaggedTensor | tf.SparseTensor):
        return inputs
    categories = tf.convert_to_tensor(inputs)
    if not (categories.dtype.is_integer or categories.dtype.is_floating):
        return inputs
    zeros = tf.zeros([count], categories.dtype)
    # TensorFlow changes the names of scopes, and may add a number to this one.
    name = f"{CATEGORIES}.{re.sub('[^A-Za-z0-9_-]', '_', layer)}."
    return categories + tf.gather(zeros, tf.cast(categories, tf.int64), name=name)
