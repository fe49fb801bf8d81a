"""One minibatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
