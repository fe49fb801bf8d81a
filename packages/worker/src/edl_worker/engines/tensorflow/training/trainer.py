"""What the training loop asks of a model: to add minibatches to a push, and to hand it over."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.job import WirePrecision
from edl_worker.engines.tensorflow.embedding.tables import RowRequest
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.training.wire_values import WireValues


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one push sends: the result of one minibatch, or of several local steps.

    Attributes:
        gradient: bytes of the trainable groups, in wire order.
        state_delta: bytes of the state groups; empty when training changes no state.
        loss: of the minibatch, regularization included; of local steps the mean over records.
        rows: bytes of the gradients of rows, for each embedding table.
        precision: of gradient and rows; float32 if a number overflows in 16 bits.
    """

    gradient: tuple[memoryview, ...]
    state_delta: tuple[memoryview, ...]
    loss: float
    rows: tuple[memoryview, ...] = ()
    precision: WirePrecision = WirePrecision.FLOAT32

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss)


class Trainer(ABC):
    """Computes what a worker pushes. A job has one kind of trainer.

    For each push the training loop calls ``begin_push`` once, ``add`` for each minibatch, and
    ``take``. A push that is begun again drops what was added.
    """

    changes_values: ClassVar[bool]
    """Whether ``add`` changes the weights, which are no parameter version after that."""

    def __init__(self, model_file: ModelFile, wire: WireValues) -> None:
        self._file = model_file
        self._wire = wire
        groups = wire.arena.groups
        self._trainable = [group.weights for group in groups if group.trainable]
        self._state = [group.weights for group in groups if not group.trainable]

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self._file.model

    @abstractmethod
    def prime(self, batch: Batch) -> None:
        """Trace the step once for all sizes of a minibatch shaped like this one."""

    @abstractmethod
    def begin_push(self, version: int, learning_rate: float | None = None) -> None:
        """Begin a push from the present values.

        Args:
            version: of these values.
            learning_rate: what callbacks have set; None: as the optimizer says.
        """

    @abstractmethod
    def add(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Sequence[Any] = ()
    ) -> float:
        """Train on a minibatch; return its loss.

        Args:
            batch: the minibatch.
            wanted: the rows that it needs of the model's embedding tables, if there are any.
            rows: these rows, an array for each table.
        """

    @abstractmethod
    def take(self) -> StepResult:
        """What to push for the minibatches that were added."""

    def _loss(self, features: Any, labels: Any, weights: Any) -> tf.Tensor:
        outputs = self._file.call(features, training=True)
        weights = self._file.training_weights(labels, weights)
        loss = tf.cast(self._file.compute_loss(outputs, labels, weights), tf.float32)
        added = self._file.model.losses
        if added:
            loss += tf.add_n([tf.cast(tf.reduce_sum(term), tf.float32) for term in added])
        return loss
