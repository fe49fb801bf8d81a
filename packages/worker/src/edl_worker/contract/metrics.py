"""Evaluation metrics whose states add up over tasks and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MetricStates = list[tuple[str, list[np.ndarray]]]


class Metrics:
    """Metrics of one evaluation task, or of the sum of many.

    Always has ``loss``, the mean over samples, beside what the model file names.
    """

    def update(self, labels: Any, outputs: Any) -> None:
        """Takes a minibatch into account."""
        raise NotImplementedError

    def states(self) -> MetricStates:
        """Values that, added elementwise over tasks, stand for all of them together."""
        raise NotImplementedError

    def load(self, states: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replaces what was counted so far by ``states``, usually a sum."""
        raise NotImplementedError

    def result(self) -> dict[str, float]:
        raise NotImplementedError
