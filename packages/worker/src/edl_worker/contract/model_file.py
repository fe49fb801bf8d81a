"""A loaded model file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras
from elasticdl.python.common.constants import Mode

from edl_worker.contract.batch import Batch
from edl_worker.contract.metrics import Metrics


class ModelFile:
    """A model with all that it takes to train, evaluate and predict.

    Attributes:
        model: the Keras model; a subclassed one has no variables before ``build``.
        optimizer: created once.
        reduction: how the loss reduces a batch; final after ``build``.
        metric_names: ``loss`` and the model file's metrics; final after ``build``.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    reduction: Literal["mean", "sum"]

    @property
    def metric_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def batches(
        self,
        blocks: Callable[[], Iterator[list[bytes]]],
        *,
        mode: Mode,
        minibatch_size: int,
        seed: int,
        skip: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """The minibatches of one task, the same ones for the same records and seed.

        Close the iterator (``.close()``) when it is left before its end.

        Args:
            blocks: yields the records of the task in order, in blocks; called once.
            skip: minibatches at the start to leave out.
            columns: names of the columns when the records are CSV rows.

        Raises:
            EdlError: from ``next``: what is wrong with the data or the model file.
        """
        raise NotImplementedError

    def build(self, batch: Batch) -> None:
        """Makes all variables exist and traces model, loss and metrics once, computing nothing.

        Raises:
            ContractErrors: what does not fit together.
        """
        raise NotImplementedError

    def call(self, features: Any, training: bool) -> Any:
        """The model's outputs; may be traced."""
        raise NotImplementedError

    def compute_loss(self, outputs: Any, labels: Any) -> Any:
        """The loss of a minibatch, a floating scalar; may be traced.

        The model file's loss and nothing else: ``model.losses`` (regularizers) are not in it.
        """
        raise NotImplementedError

    def new_metrics(self) -> Metrics:
        raise NotImplementedError
