"""The training loop's interface to a model: add minibatches to a push, and take it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy.typing as npt

from edl_worker.core.batch import Batch
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import StepEngine, StepResult


class Trainer(ABC):
    """A trainer computes what a worker pushes. A job has one kind of trainer.

    For each push the training loop calls ``begin_push`` once, ``add`` for each minibatch, and
    ``take``. A push that is begun again drops what was added.
    """

    changes_values: ClassVar[bool]
    """Whether ``add`` changes the weights, which are no parameter version after that."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine

    @abstractmethod
    def begin_push(self, version: int, learning_rate: float | None = None) -> None:
        """Begin a push from the present values.

        Args:
            version: of these values.
            learning_rate: what callbacks have set; None: the optimizer's own.
        """

    @abstractmethod
    def add(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> float:
        """Train on a minibatch; return its loss.

        Args:
            batch: the minibatch.
            wanted: the rows that it needs of the model's embedding tables, if there are any.
            rows: their numbers, float32 of shape (n,), one row after the other.
        """

    @abstractmethod
    def take(self) -> StepResult:
        """Return what to push for the minibatches that were added."""


class GradientTrainer(Trainer):
    """A trainer that pushes gradients of minibatches; the optimizer is where the values are."""

    changes_values = False

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._computed: StepResult | None = None

    def begin_push(self, version: int, learning_rate: float | None = None) -> None:
        """Drop the last gradient."""
        self._computed = None

    def add(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> float:
        """Compute a gradient, which is all that the push sends."""
        self._computed = self._engine.gradient(batch, wanted, rows)
        return self._computed.loss

    def take(self) -> StepResult:
        """Return the gradient that was computed last."""
        computed, self._computed = self._computed, None
        assert computed is not None, "a gradient was computed"
        return computed


class LocalTrainer(Trainer):
    """A trainer that pushes the change by several updates of its own values, as a gradient."""

    changes_values = True

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._start: list[npt.NDArray[Any]] = []
        self._loss_sum = 0.0  # over the records of the push
        self._records = 0

    def begin_push(self, version: int, learning_rate: float | None = None) -> None:
        """Note the present values."""
        self._loss_sum, self._records = 0.0, 0
        self._start = self._values()
        self._engine.place_optimizer(version, learning_rate)

    def add(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> float:
        """Update the values with a minibatch; return its loss."""
        loss = self._engine.step(batch)
        self._loss_sum += loss * batch.size
        self._records += batch.size
        return loss

    def take(self) -> StepResult:
        """Return the difference of the values since ``begin_push``, as a gradient."""
        pairs = zip(self._values(), self._start, strict=True)
        difference = [now - then for now, then in pairs]
        border = sum(group.trainable for group in self._engine.layout.groups)
        gradient, precision = self._engine.encode(difference[:border])
        delta = tuple(memoryview(part).cast("B") for part in difference[border:])
        return StepResult(gradient, delta, self._loss_sum / self._records, precision=precision)

    def _values(self) -> list[npt.NDArray[Any]]:
        """Return a copy of the present values, a flat array for each group of the layout."""
        return self._engine.layout.views(self._engine.pack())
