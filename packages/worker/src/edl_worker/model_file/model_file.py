"""A loaded model file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import keras
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import BoundFunction
from edl_worker.model_file.batch import Batch
from edl_worker.model_file.errors import ContractErrors, blame
from edl_worker.model_file.feature_mapping import FeatureMapper
from edl_worker.model_file.metrics import EvaluationMetrics, MetricComputation
from edl_worker.model_file.pipelines.dataset_pipeline import DatasetPipeline
from edl_worker.model_file.pipelines.records_pipeline import RecordsPipeline
from edl_worker.model_file.zoo import compatibility
from edl_worker.tensorflow_internals import convert_with_autograph
from elasticdl.python.common.constants import Mode

Reduction = Literal["mean", "sum"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _as_is(method: _Method) -> _Method:
    """Keeps AutoGraph of the caller's tf.function out of our own code."""
    kept: _Method = tf.autograph.experimental.do_not_convert(method)
    return kept


_SAMPLE = 4  # records that the rehearsal tries reductions and metrics with


@dataclass(frozen=True, slots=True)
class ModelFileDescription:
    """What a model file is made of; None for what the job does not need."""

    root: Path
    form: str
    where: str
    model: keras.Model
    optimizer: keras.optimizers.Optimizer | None
    pipeline: DatasetPipeline | RecordsPipeline | None
    feeder: FeatureMapper
    loss: BoundFunction | None
    loss_reduction: Reduction | None  # known beforehand from a Keras loss
    metrics: dict[str, Any]
    per_batch_metrics: BoundFunction | None


class ModelFile:
    """A model with all that it takes to train, evaluate and predict.

    Attributes:
        form: how the model was given: instance, class, function or spec.
        model: the Keras model; a subclassed one has no variables before ``build``.
        reduction: how the loss reduces a batch; final after ``build``.
    """

    def __init__(self, pieces: ModelFileDescription) -> None:
        self.form = pieces.form
        self.model = pieces.model
        self.reduction: Reduction = pieces.loss_reduction or "mean"
        self._pieces = pieces
        self._metrics = MetricComputation(
            self.compute_loss if pieces.loss is not None else None,
            lambda: self.reduction == "sum",
            pieces.metrics,
            pieces.per_batch_metrics,
            refuse=self._contract,
            blame=lambda error: self._blame(error, "the evaluation metrics raised"),
        )
        self._loss = _Loss(pieces.loss) if pieces.loss is not None else None

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """Created once.

        Raises:
            RuntimeError: the file was loaded for a purpose that needs no optimizer.
        """
        if self._pieces.optimizer is None:
            raise RuntimeError("the model file was loaded without its optimizer")
        return self._pieces.optimizer

    @property
    def metric_names(self) -> tuple[str, ...]:
        """``loss`` and the model file's metrics; final after ``build``."""
        return self._metrics.names

    @property
    def inputs(self) -> list[dict[str, Any]] | None:
        """Name, shape and dtype of each input; None when only data can tell."""
        found = [
            {"name": one.name, "shape": list(one.shape[1:]), "dtype": one.dtype}
            for one in self._pieces.feeder.inputs
        ]
        return found or None

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
            blocks: yields the records of the task in order, in blocks; called once for
                each time that the pipeline reads its source, usually once.
            skip: minibatches at the start to leave out.
            columns: names of the columns when the records are CSV rows.

        Raises:
            EdlError: from ``next``: what is wrong with the data or the model file.
        """
        if self._pieces.pipeline is None:
            raise RuntimeError("the model file was loaded without its input function")
        return self._pieces.pipeline.batches(
            blocks,
            mode=mode,
            minibatch_size=minibatch_size,
            seed=seed,
            skip=skip,
            columns=tuple(columns or ()),
        )

    @_as_is
    def call(self, features: Any, training: bool) -> Any:
        """The model's outputs; may be traced."""
        with compatibility.served():
            return self._pieces.feeder(features, training)

    @_as_is
    def compute_loss(self, outputs: Any, labels: Any) -> Any:
        """The loss of a minibatch, a floating scalar; may be traced.

        The model file's loss and nothing else: ``model.losses`` (regularizers) are not in it.
        """
        if self._loss is None:
            raise RuntimeError("the model file was loaded without its loss")
        with compatibility.served():
            value = self._loss(outputs=outputs, labels=labels)
        return self._as_scalar(value)

    def new_metrics(self) -> EvaluationMetrics:
        """Metrics that have counted nothing yet; call ``build`` first."""
        return EvaluationMetrics(self._metrics)

    def build(self, batch: Batch, *, rehearse: bool = True) -> None:
        """Makes all variables exist and tries out what the model file says, training nothing.

        Args:
            batch: any minibatch.
            rehearse: also trace a whole step and check that metrics add up. A worker of a
                job that runs already may leave it out.

        Raises:
            ContractErrors: what does not fit together.
        """
        try:
            outputs = self._trace_forward(batch)
            if batch.labels is None or self._pieces.loss is None:
                return
            if rehearse and self._pieces.optimizer is not None:
                self._trace_step(batch)
            self._try_reductions(batch, outputs, check_additive=rehearse)
        except ContractErrors:
            raise
        except EdlError as error:
            raise ContractErrors([error]) from error

    # The rehearsal.

    def _trace_forward(self, batch: Batch) -> Any:
        """Shapes of the outputs; variables exist afterwards, as they were initialized."""
        manners = (
            [None] if self._pieces.feeder.inputs else self._pieces.feeder.manners(batch.features)
        )
        failures: list[Exception] = []
        for manner in manners:
            if manner is not None:
                self._pieces.feeder.settle(manner)
            try:
                # Traced, not run: a forward pass would move the statistics of layers that are
                # called with training=True.
                traced = tf.function(
                    lambda features: self.call(features, training=True), autograph=False
                ).get_concrete_function(_specs(batch.features))
                return traced.structured_outputs
            except EdlError:
                raise
            except Exception as error:
                failures.append(error)
        raise self._blame(
            failures[0], f"the model {self.model.name} raised when called with a minibatch"
        ) from failures[0]

    def _trace_step(self, batch: Batch) -> None:
        def step(features: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self.call(features, training=True)
                loss = self.compute_loss(outputs, labels)
            gradients = tape.gradient(loss, [v.value for v in self.model.trainable_variables])
            reached.append(any(gradient is not None for gradient in gradients))
            return loss

        reached: list[bool] = []
        try:
            tf.function(step, autograph=False).get_concrete_function(
                _specs(batch.features), _specs(batch.labels)
            )
        except EdlError:
            raise
        except Exception as error:
            raise self._blame_loss(error) from error
        if self.model.trainable_variables and not any(reached):
            raise self._contract(
                "the loss does not depend on the model's weights, so nothing would be learned",
                "Compute the loss from the predictions, with operations that have gradients "
                "(tf.argmax, tf.equal and .numpy() have none).",
            )

    def _try_reductions(self, batch: Batch, outputs: Any, *, check_additive: bool) -> None:
        """Tries loss and metrics on values of the outputs' shapes; which values is no matter."""
        rows = min(_SAMPLE, batch.size)
        labels = tf.nest.map_structure(lambda tensor: tensor[:rows], batch.labels)
        values = tf.nest.map_structure(lambda spec: _values(spec, rows), outputs)
        try:
            self.reduction = self._pieces.loss_reduction or self._find_reduction(labels, values)
        except Exception as error:
            raise self._blame_loss(error) from error
        try:
            with compatibility.served():
                self._metrics.prepare(labels, values)
                halves = [
                    tf.nest.map_structure(lambda tensor: tensor[part], (labels, values))  # noqa: B023
                    for part in (slice(0, rows // 2), slice(rows // 2, rows))
                ]
                if check_additive and rows > 1:
                    self._metrics.check_additive(labels, values, halves)
                self.new_metrics().update(labels, values)
        except EdlError:
            raise
        except Exception as error:
            raise self._blame(error, "the evaluation metrics raised") from error

    def _find_reduction(self, labels: Any, outputs: Any) -> Reduction:
        """A loss that doubles with its batch is a sum."""
        twice = tf.nest.map_structure(lambda t: tf.concat([t, t], 0), (outputs, labels))
        single = float(self.compute_loss(outputs, labels))
        double = float(self.compute_loss(*twice))
        doubled = abs(double - 2 * single) <= 1e-4 * abs(double)
        return "sum" if doubled and single != 0 else "mean"

    def _as_scalar(self, value: Any) -> Any:
        part = self._pieces.loss.part if self._pieces.loss is not None else None
        name = part.signature if part else "loss"
        try:
            tensor = tf.convert_to_tensor(value)
        except (ValueError, TypeError):
            tensor = None
        if tensor is None or not tensor.dtype.is_floating:
            found = type(value).__name__ if tensor is None else f"tensor of {tensor.dtype.name}"
            raise EdlError(
                error_pb2.MODEL_CONTRACT,
                f"{name} returned a {found}, not a floating tensor",
                where=part.where if part else "",
                remedy="Return a scalar, or one value per sample: tf.reduce_mean(...).",
            )
        return tensor if tensor.shape.rank == 0 else tf.reduce_mean(tensor)

    def _blame_loss(self, error: Exception) -> EdlError:
        loss = self._pieces.loss
        return self._blame(error, f"{loss.part.signature if loss else 'loss'} raised")

    def _blame(self, error: Exception, doing: str) -> EdlError:
        shape = isinstance(error, ValueError | tf.errors.InvalidArgumentError)
        return blame(
            error,
            self._pieces.root,
            code=error_pb2.SHAPE_MISMATCH if shape else error_pb2.MODEL_CONTRACT,
            doing=doing,
            fallback=self._pieces.where,
            remedy="Compare the shapes that the input function yields with what model, loss and "
            "metrics take."
            if shape
            else "Mend the function; the detail shows its own frames.",
        )

    def _contract(self, what: str, remedy: str) -> EdlError:
        loss = self._pieces.loss
        return EdlError(
            error_pb2.MODEL_CONTRACT,
            what,
            where=loss.part.where if loss is not None and "loss" in what else self._pieces.where,
            remedy=remedy,
        )


class _Loss:
    """A loss as it is written; with AutoGraph if it branches on a tensor."""

    def __init__(self, function: BoundFunction) -> None:
        self._function = function

    def __call__(self, **given: Any) -> Any:
        try:
            return self._function(**given)
        except tf.errors.OperatorNotAllowedInGraphError:
            if not inspect.isroutine(self._function.function):
                raise
            self._function = replace(
                self._function, function=convert_with_autograph(self._function.function)
            )
            return self._function(**given)


def _specs(nest: Any) -> Any:
    return tf.nest.map_structure(tf.type_spec_from_value, nest)


def _values(spec: Any, rows: int) -> tf.Tensor:
    """Numbers in [0, 1) in the shape of an output for ``rows`` records."""
    shape = [rows, *(size or 1 for size in spec.shape[1:])]
    values = tf.random.stateless_uniform(shape, seed=(1, 2))
    return tf.cast(values, spec.dtype)
