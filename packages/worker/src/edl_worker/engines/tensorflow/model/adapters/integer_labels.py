"""Labels of 32 bits where a function compares them with integers of 64 bits.

numpy compares the two, and so did files of ElasticDL whose ``input_fn`` returns arrays. A tensor of
``tf.argmax`` has 64 bits, and TensorFlow refuses to compare it with a label of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def with_wide_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets int64 labels if it raises for int32 ones and takes these."""
    takes_wide = False

    def call(*, labels: Any, **given: Any) -> Any:
        nonlocal takes_wide
        if takes_wide:
            return function(labels=_widen(labels), **given)
        try:
            return function(labels=labels, **given)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            if getattr(labels, "dtype", None) != tf.int32:
                raise
            try:
                result = function(labels=_widen(labels), **given)
            except Exception:
                raise error from None
        takes_wide = True
        return result

    return call


def _widen(labels: Any) -> Any:
    return tf.cast(labels, tf.int64) if labels.dtype == tf.int32 else labels
