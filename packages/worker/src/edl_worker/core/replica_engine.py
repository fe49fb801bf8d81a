"""The port to a model whose replicas train in step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from edl_worker.core.replicas import Part
from edl_worker.core.step_engine import StepEngine


class ReplicaEngine(StepEngine, Protocol):
    """A model whose own optimizer makes all updates; ``TrainingSettings.replicated`` asks for one.

    The state of the optimizer is among the values. Exported forms have it.
    """

    def apply(
        self, gradient: Sequence[npt.NDArray[Any]], state_delta: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Update the values with the sum of the replicas' gradients and the model's own optimizer.

        Args:
            gradient: a flat array for each trainable group; it is not used after the call.
            state_delta: likewise for each group of the model's own state; empty if training
                changes none.
        """

    def set_learning_rate(self, rate: float | None) -> None:
        """Set the learning rate of the model's own optimizer; None: the one that it came with."""

    def finish(self) -> None:
        """Give the model the values that its optimizer ends with, such as their average."""

    @property
    def replica_parts(self) -> Sequence[Part]:
        """The arrays that replicas add up: trainable groups, then groups of the model's state."""
