"""One minibatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes on.

    Attributes:
        features: a tensor or a nest of tensors, first dimension ``size``; for ``ModelFile.call``.
        labels: likewise, for ``ModelFile.compute_loss``; None for prediction.
        size: number of elements.
    """

    features: Any
    labels: Any
    size: int


def rows_of(nest: Any) -> int:
    """First dimension of the first tensor in a nest of eager tensors."""
    first = tf.nest.flatten(nest)[0]
    rows = first.shape[0]
    return int(rows if rows is not None else tf.shape(first)[0])
