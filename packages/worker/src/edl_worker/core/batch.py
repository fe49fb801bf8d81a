"""One minibatch, and the records that minibatches are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Blocks = Callable[[], Iterator[list[bytes]]]
"""Yields records in order, in blocks; called once for each time that they are read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of one step.

    Attributes:
        features: a tensor or a nest of tensors with first dimension ``size``, for the model.
        labels: likewise, for the loss; None in a prediction.
        size: number of examples.
        weights: likewise, how much each example counts in the loss; None: all the same.
    """

    features: Any
    labels: Any
    size: int
    weights: Any = None
