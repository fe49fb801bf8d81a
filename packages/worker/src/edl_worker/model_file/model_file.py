"""A loaded model file: the interface through which workers train, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_worker.model_file.batch import Batch
from edl_worker.model_file.description import FormName, ModelFileDescription, Reduction
from edl_worker.model_file.dry_run import DryRun
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.metrics import EvaluationMetrics, MetricComputation
from edl_worker.model_file.pipelines.request import Blocks, MinibatchRequest
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _not_converted(method: _Method) -> _Method:
    """Excludes edl's own code from the AutoGraph of the caller's ``tf.function``."""
    unconverted: _Method = tf.autograph.experimental.do_not_convert(method)
    return unconverted


class ModelFile:
    """A model with everything that is needed to train it, evaluate it and predict with it.

    Attributes:
        form: how the model was written: instance, class, function or spec.
        model: the Keras model; a subclassed one has no variables before ``build``.
        reduction: how the loss reduces a batch; final after ``build``.
    """

    def __init__(self, description: ModelFileDescription) -> None:
        self.form: FormName = description.form
        self.model = description.model
        self._description = description
        self._loss = description.loss
        declared = description.loss.declared_reduction if description.loss is not None else None
        self.reduction: Reduction = declared or "mean"
        self._metrics = MetricComputation(
            description,
            self.compute_loss if description.loss is not None else None,
            lambda: self.reduction == "sum",
        )

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The optimizer, created once.

        Raises:
            RuntimeError: the file was loaded for a purpose that needs no optimizer.
        """
        if self._description.optimizer is None:
            raise RuntimeError("the model file was loaded without its optimizer")
        return self._description.optimizer

    @property
    def loss_place(self) -> str:
        """File, line and name of the loss; empty if there is none."""
        return self._description.loss.place if self._description.loss is not None else ""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """``loss`` and the model file's metrics; final after ``build``."""
        return self._metrics.names

    @property
    def inputs(self) -> list[dict[str, Any]] | None:
        """Name, shape and dtype of each input; None if only data can show them."""
        inputs = [
            {"name": one.name, "shape": list(one.shape[1:]), "dtype": one.dtype}
            for one in self._description.feature_mapper.inputs
        ]
        return inputs or None

    def batches(
        self,
        blocks: Blocks,
        *,
        mode: Mode,
        minibatch_size: int,
        seed: int,
        skip: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """The minibatches of one task, the same ones for the same records and seed.

        Close the iterator (``.close()``) if you leave it before its end.

        Args:
            blocks: yields the records of the task in order, in blocks; called once for
                each time that the pipeline reads its source, usually once.
            skip: number of minibatches to leave out at the start.
            columns: names of the columns if the records are CSV rows.

        Raises:
            EdlError: from ``next``: the data or the model file has an error.
        """
        return self._description.input_pipeline.batches(
            MinibatchRequest(blocks, mode, minibatch_size, seed, skip, tuple(columns or ()))
        )

    @_not_converted
    def call(self, features: Any, training: bool) -> Any:
        """The model's outputs; may be traced."""
        with compatibility.removed_names_provided():
            return self._description.feature_mapper(features, training)

    @_not_converted
    def compute_loss(self, outputs: Any, labels: Any) -> Any:
        """The loss of a minibatch, a floating scalar; may be traced.

        It is the model file's loss only and does not include ``model.losses`` (regularizers).

        Raises:
            RuntimeError: the file was loaded for a purpose that needs no loss.
            EdlError: MODEL_CONTRACT, the loss did not return a floating tensor.
        """
        if self._loss is None:
            raise RuntimeError("the model file was loaded without its loss")
        with compatibility.removed_names_provided():
            value = self._loss.function(outputs=outputs, labels=labels)
        return self._scalar(value)

    def new_metrics(self) -> EvaluationMetrics:
        """Metrics that have counted nothing yet; call ``build`` first."""
        return EvaluationMetrics(self._metrics)

    def build(self, batch: Batch) -> None:
        """Creates all variables and tries every function of the model file; trains nothing.

        Args:
            batch: any minibatch.

        Raises:
            ContractErrors: parts of the model file do not fit together.
        """
        dry_run = DryRun(self._description, self.call, self.compute_loss)
        try:
            outputs = dry_run.trace_forward(batch)
            if batch.labels is None or self._loss is None:
                return
            if self._description.optimizer is not None:
                dry_run.trace_step(batch)
            sample = dry_run.sample(batch, outputs)
            self.reduction = self._loss.declared_reduction or dry_run.find_reduction(sample)
            dry_run.try_metrics(self._metrics, sample)
        except ContractErrors:
            raise
        except EdlError as error:
            raise ContractErrors([error]) from error

    def _scalar(self, value: Any) -> Any:
        assert self._loss is not None
        try:
            tensor = tf.convert_to_tensor(value)
        except (ValueError, TypeError):
            tensor = None
        if tensor is None or not tensor.dtype.is_floating:
            found = type(value).__name__ if tensor is None else f"tensor of {tensor.dtype.name}"
            raise self._description.contract_error(
                f"{self._loss.signature} returned a {found}, not a floating tensor",
                "Return a scalar, or one value per sample: tf.reduce_mean(...).",
                self._loss.place,
            )
        return tensor if tensor.shape.rank == 0 else tf.reduce_mean(tensor)
