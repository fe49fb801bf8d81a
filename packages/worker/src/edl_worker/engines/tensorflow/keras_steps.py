"""The values and steps of a Keras model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.job import WirePrecision
from edl_worker.core.layer_state import LayerState
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import ExportForm, OptimizerState, StepResult
from edl_worker.core.tasks import CallbackResult, EpochLogs
from edl_worker.engines.tensorflow import weights
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.epoch_callbacks import CallbackCaller
from edl_worker.engines.tensorflow.export_forms import export_forms
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.optimizers import describe_optimizers, encode_value
from edl_worker.engines.tensorflow.saved_optimizer import (
    find_slots,
    with_restored_optimizer,
)
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.optimizer_step import OptimizerStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues, memory


class KerasSteps:
    """The ``StepEngine`` of a Keras model; its steps are traced when they are first used."""

    def __init__(
        self,
        file: ModelFile,
        tables: EmbeddingTables | None = None,
        precision: WirePrecision = WirePrecision.FLOAT32,
        *,
        epochs: int = 1,
        input_spec: Any = None,
        warnings: tuple[str, ...] = (),
        optimizer: Sequence[keras.Variable] | None = None,
        export_formats: Sequence[str] = (),
    ) -> None:
        """Arrange the values of a model that has been built.

        Args:
            file: the model.
            tables: its embedding tables.
            precision: in which gradients are sent.
            epochs: how many the job has, for callbacks.
            input_spec: specification of a minibatch's features, any size.
            warnings: what users should know about its initial values.
            optimizer: the state of its own optimizer, if that makes all updates.
            export_formats: further forms of the trained model.

        Raises:
            EdlError: MODEL_CONTRACT, a weight cannot be sent.
        """
        self.layout = Arena(file.model, tables, file.place, optimizer)
        self.precision = precision
        self.tables = tables
        self._file = file
        self._wire = WireValues(self.layout, precision)
        as_fit = optimizer is not None
        self._jit = as_fit and bool(file.model.jit_compile)
        checks = as_fit and not isinstance(file.optimizer, keras.optimizers.LossScaleOptimizer)
        self._gradient = GradientStep(file, self._wire, tables, checks=checks, jit=self._jit)
        self._own: OptimizerStep | None = None
        self._callbacks = CallbackCaller(file, self.layout, epochs)
        self._input_spec = input_spec
        self._warnings = warnings
        self._export_formats = export_formats

    @property
    def traces(self) -> int:
        """The number of traces of the gradient; more than a few is an error."""
        return self._gradient.traces

    def describe(self) -> ModelDescription:
        """Return the model as the master needs to know it."""
        file = self._file
        optimizers = describe_optimizers(file, self.layout)
        return ModelDescription(
            variables=tuple(self.layout.describe()),
            tables=tuple(self.tables.describe() if self.tables else ()),
            reduction=file.reduction,
            callbacks=tuple(type(each).__name__ for each in file.callbacks),
            optimizer_json=json.dumps(optimizers, default=encode_value),
            layer_states=tuple(state.summarize() for state in file.layer_states),
            warnings=self._warnings,
        )

    # --- steps -----------------------------------------------------------------------------

    def trace(self, batch: Batch, *, local: bool) -> None:
        """Trace a step; see ``StepEngine``."""
        if local:
            self._optimizer_step().prime(batch)
        else:
            self._gradient.prime(batch)

    def gradient(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None
    ) -> StepResult:
        """Return the gradient of a minibatch; see ``StepEngine``."""
        return self._gradient.compute(batch, wanted, rows)

    def step(self, batch: Batch) -> float:
        """Update the values; see ``StepEngine``."""
        return self._optimizer_step().update(batch)

    def place_optimizer(self, version: int, learning_rate: float | None) -> None:
        """Set where the optimizer stands; see ``StepEngine``."""
        self._optimizer_step().place_optimizer(version, learning_rate)

    def _optimizer_step(self) -> OptimizerStep:
        if self._own is None:
            gradient = self._gradient
            self._own = OptimizerStep(
                self._file, self.layout, lambda: gradient.unconnected, jit=self._jit
            )
        return self._own

    # --- values ----------------------------------------------------------------------------

    def encode(self, gradient: Sequence[Any]) -> tuple[tuple[memoryview, ...], WirePrecision]:
        """Return flat arrays as they are sent; see ``StepEngine``."""
        tensors = [tf.convert_to_tensor(part) for part in gradient]
        parts, precision = self._wire.select(tensors, self._wire.quantize(tensors))
        return memory(parts), precision

    def pack(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the present values as a payload; see ``StepEngine``."""
        return self.layout.pack()

    def assign(
        self, payload: npt.NDArray[np.uint8], precision: WirePrecision = WirePrecision.FLOAT32
    ) -> None:
        """Give the model the values of a payload; see ``StepEngine``."""
        self._wire.assign(payload, precision)

    # --- other tasks of a training job -----------------------------------------------------

    def call_callbacks(self, ended: int, call: EpochLogs) -> CallbackResult:
        """Call the callbacks of the model file; see ``StepEngine``."""
        return self._callbacks.call(ended, call)

    def named_values(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return a copy of all present numbers by name; see ``StepEngine``."""
        return weights.of_model(self._file.model)

    def layer_states(self) -> Sequence[LayerState]:
        """Return the state of layers that is no number of the model; see ``StepEngine``."""
        return self._file.layer_states

    @property
    def exported_slots(self) -> Sequence[str] | None:
        """The optimizer's slots that an exported model has; see ``StepEngine``."""
        return None if self.tables is not None else find_slots(self._file)

    def export_forms(self, optimizer: OptimizerState | None = None) -> Sequence[ExportForm]:
        """Return the forms in which the model can be exported; see ``StepEngine``."""
        return export_forms(
            self._file,
            self._input_spec,
            lambda: self._with_optimizer(optimizer),
            self._export_formats,
        )

    def _with_optimizer(self, state: OptimizerState | None) -> AbstractContextManager[None]:
        """Let Keras save the model with an optimizer."""
        return with_restored_optimizer(self._file, self.layout, state)
