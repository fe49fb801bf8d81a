"""The values and steps of a Keras model whose replicas train in step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy.typing as npt

from edl_worker.core.replicas import Part
from edl_worker.core.step_engine import OptimizerState
from edl_worker.engines.tensorflow.keras_steps import KerasSteps
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.saved_optimizer import with_own_optimizer
from edl_worker.engines.tensorflow.training.own_optimizers import build_optimizers


class ReplicaSteps(KerasSteps):
    """The ``ReplicaEngine`` of a Keras model; the optimizer is Keras's own, whatever it is."""

    def __init__(
        self,
        file: ModelFile,
        *,
        epochs: int = 1,
        input_spec: Any = None,
        warnings: tuple[str, ...] = (),
        export_formats: Sequence[str] = (),
    ) -> None:
        """Build the optimizer of a model that has been built; see ``KerasSteps``."""
        super().__init__(
            file,
            epochs=epochs,
            input_spec=input_spec,
            warnings=warnings,
            optimizer=build_optimizers(file),
            export_formats=export_formats,
        )

    @property
    def update_traces(self) -> int:
        """The number of traces of an update; more than a few is an error."""
        return self._optimizer_step().traces

    def apply(
        self, gradient: Sequence[npt.NDArray[Any]], state_delta: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Update the values with a sum of gradients; see ``ReplicaEngine``."""
        self._optimizer_step().apply(gradient, state_delta)

    def set_learning_rate(self, rate: float | None) -> None:
        """Set the learning rate of the model's own optimizer; see ``ReplicaEngine``."""
        self._optimizer_step().set_learning_rate(rate)

    def finish(self) -> None:
        """Give the model the values that its optimizer ends with; see ``ReplicaEngine``."""
        self._optimizer_step().finish()

    @property
    def replica_parts(self) -> Sequence[Part]:
        """The arrays that replicas add up; see ``ReplicaEngine``."""
        return [Part(group.dtype, sum(group.sizes)) for group in self.layout.model.groups]

    @property
    def exported_slots(self) -> None:
        """The slots that the master has: none, so the model has them itself."""

    def _with_optimizer(self, state: OptimizerState | None) -> AbstractContextManager[None]:
        return with_own_optimizer(self._file)
