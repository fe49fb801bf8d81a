"""Local steps: several minibatches update the worker's own values, and are pushed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables, RowRequest
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction
from edl_worker.engines.tensorflow.training.trainer import StepResult, Trainer
from edl_worker.engines.tensorflow.training.wire_values import WireValues, memory


class LocalTrainer(Trainer):
    """A model whose variables the model file's own optimizer updates after each minibatch.

    A push sends the difference of the variables since its beginning, as a gradient.
    """

    changes_values = True

    def __init__(
        self, model_file: ModelFile, wire: WireValues, tables: EmbeddingTables | None = None
    ) -> None:
        """Make the traced functions.

        Args:
            model_file: the model.
            wire: its weights.
            tables: its embedding tables.

        Raises:
            EdlError: MODEL_CONTRACT; the model has embedding tables.
        """
        if tables is not None:
            raise _has_tables(tables)
        super().__init__(model_file, wire)
        self._start: list[tf.Tensor] = []
        self._loss_sum = 0.0  # over the records of the push
        self._records = 0
        self._rate: float | None = None  # of the optimizer, once callbacks have set another
        self._step = SizeAgnosticFunction(self._trace_step)
        self._optimizers = [model_file.optimizer]
        if model_file.custom_train_step is not None:  # which builds them for what they update
            self._optimizers = model_file.custom_train_step.optimizers
        else:
            model_file.optimizer.build([w.variable for group in self._trainable for w in group])

    def prime(self, batch: Batch) -> None:
        """As ``Trainer.prime``."""
        self._step.prime(batch.size, batch.features, batch.labels, batch.weights)

    def begin_push(self, version: int, learning_rate: float | None = None) -> None:
        """As ``Trainer.begin_push``."""
        self._loss_sum, self._records = 0.0, 0
        self._start = self._wire.read()
        # A version is one minibatch: where a schedule of the learning rate stands.
        for optimizer in self._optimizers:
            optimizer.iterations.assign(version)
        if learning_rate is not None or self._rate is not None:
            given = keras.optimizers.serialize(self._file.optimizer)["config"]["learning_rate"]
            self._rate = given if self._rate is None else self._rate
            rate = self._rate if learning_rate is None else learning_rate
            self._file.optimizer.learning_rate = rate

    def add(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Sequence[Any] = ()
    ) -> float:
        """Update the variables with a minibatch; return its loss."""
        loss = float(self._step(batch.size, batch.features, batch.labels, batch.weights))
        self._loss_sum += loss * batch.size
        self._records += batch.size
        return loss

    def take(self) -> StepResult:
        """The difference of the variables since ``begin_push``, as a gradient."""
        pairs = zip(self._wire.read(), self._start, strict=True)
        difference = [now - then for now, then in pairs]
        border = len(self._trainable)
        whole, delta = difference[:border], difference[border:]
        gradient, _, precision = self._wire.select(whole, [], self._wire.quantize(whole, []))
        loss = self._loss_sum / self._records
        return StepResult(memory(gradient), memory(delta), loss, (), precision)

    # --- traced ----------------------------------------------------------------------------

    def _trace_step(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        if self._file.custom_train_step is not None:
            weights = self._file.training_weights(labels, weights)
            return self._file.custom_train_step.run(features, labels, weights)
        with tf.GradientTape() as tape:
            loss = self._loss(features, labels, weights)
        variables = [weight.variable for group in self._trainable for weight in group]
        gradients = tape.gradient(
            loss,
            [variable.value for variable in variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Dense, as the master's updates are: a row without a gradient still has its momentum.
        self._file.optimizer.apply([tf.convert_to_tensor(g) for g in gradients], variables)
        return loss


def _has_tables(tables: EmbeddingTables) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"the model has embedding tables ({', '.join(t.name for t in tables.tables)}), whose "
        "rows cannot be updated in workers: --local-steps is for models without embedding tables",
        where="--local-steps",
        remedy="Leave --local-steps out, or keep keras.layers.Embedding layers whole with "
        "--embedding-threshold 0.",
    )
