"""A loaded model file: the interface through which workers train, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import keras
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_worker.core.batch import Batch, Blocks
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.category_check import check_categories
from edl_worker.engines.tensorflow.model.adapters.optimizer import scale_loss_as_fit
from edl_worker.engines.tensorflow.model.class_weights import weigh_by_class
from edl_worker.engines.tensorflow.model.custom_evaluation import (
    CustomEvaluation,
    CustomEvaluationMetrics,
)
from edl_worker.engines.tensorflow.model.custom_steps import (
    has_custom_predict_step,
    overrides,
    unwrap_step,
)
from edl_worker.engines.tensorflow.model.description import ModelFileDescription, Reduction
from edl_worker.engines.tensorflow.model.dry_run import DryRun
from edl_worker.engines.tensorflow.model.label_check import LabelCheck, make_label_check
from edl_worker.engines.tensorflow.model.metrics import EvaluationMetrics, MetricComputation
from edl_worker.engines.tensorflow.model.monitors import (
    find_fixed_rates,
    resolve_monitors,
    resolve_paths,
)
from edl_worker.engines.tensorflow.model.trial_sample import TrialSample
from edl_worker.engines.tensorflow.model.unadapted_layers import check_adapted
from edl_worker.model_file.errors import ContractErrors, type_with_article
from edl_worker.model_file.forms.model_definition import FormName
from edl_worker.model_file.input_pipeline import MinibatchRequest
from edl_worker.model_file.known_errors import call_of_loss
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _exclude_from_autograph(method: _Method) -> _Method:
    """Exclude edl's own code from the AutoGraph of the caller's ``tf.function``."""
    unconverted: _Method = tf.autograph.experimental.do_not_convert(method)
    return unconverted


class ModelFile:
    """A model with everything that is needed to train it, evaluate it and predict with it.

    Attributes:
        form: how the model was written: instance, class, function or spec.
        model: the Keras model; a subclassed one has no variables before ``build``.
        reduction: how the loss reduces a batch; final after ``build``.
        callbacks: Keras callbacks to be called at the ends of epochs.
        callbacks_place: their file, line and name, for messages.
        zoo_root: folder of the model zoo, for messages.
        custom_train_step: that of the model; None if it has none or the job does not train.
        warnings: what will train, but was hardly meant; final after ``build``.
    """

    def __init__(self, description: ModelFileDescription) -> None:
        """Prepare to call the functions of a model file.

        Raises:
            ContractErrors: a metric has a name that is taken.
        """
        self.form: FormName = description.form
        self.model = description.model
        self._description = description
        self._loss = description.loss
        declared = description.loss.declared_reduction if description.loss is not None else None
        self.reduction: Reduction = declared or "mean"
        self.callbacks = description.callbacks
        self.callbacks_place = description.callbacks_place or description.place
        self.zoo_root = description.zoo_root
        self.custom_train_step = description.custom_train_step
        self.warnings = description.warnings
        self._custom_evaluation = (
            CustomEvaluation(self.model) if description.has_custom_test_step else None
        )
        self._label_check: LabelCheck | None = None
        self._metrics = MetricComputation(
            description,
            self.compute_loss if description.loss is not None else None,
            lambda: self.reduction == "sum",
        )
        if self._custom_evaluation is None:
            try:
                self._metrics.check_names()
            except EdlError as error:
                raise ContractErrors([error]) from error

    def decide_updates(self, *, replicated: bool) -> None:
        """Decide who makes the updates, if the file was loaded before that was known.

        Args:
            replicated: workers make them with the optimizer itself, and not a master.

        Raises:
            ContractErrors: a master cannot run the optimizer.
        """
        optimizer, refused = self._description.optimizer, self._description.refused_optimizer
        if not replicated and refused is not None:
            raise ContractErrors([refused])
        if replicated and optimizer is not None:
            optimizer = scale_loss_as_fit(optimizer, self.model)
        self._description = replace(
            self._description, replicated=replicated, optimizer=optimizer, refused_optimizer=None
        )

    @property
    def replicated(self) -> bool | None:
        """Whether workers make the updates with the optimizer itself; None: not decided yet."""
        return self._description.replicated

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The optimizer, created once; that of the model's own step is known after ``build``.

        Raises:
            RuntimeError: the file was loaded for a purpose that needs no optimizer.
        """
        own = self.custom_train_step
        optimizer = self._description.optimizer if own is None else own.optimizer
        if optimizer is None:
            raise RuntimeError("the model file was loaded without its optimizer")
        return optimizer

    @property
    def compile_arguments(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The arguments of ``model.compile`` for loss and metrics; empty where it takes none."""
        metrics = self._description.metrics
        loss = self._loss.for_compile if self._loss is not None else {}
        return loss, {} if metrics.is_computed else metrics.for_compile

    @property
    def loss_place(self) -> str:
        """The file, line and name of the loss; empty if there is none."""
        return self._description.loss.place if self._description.loss is not None else ""

    @property
    def place(self) -> str:
        """The file, line and name of the model."""
        return self._description.place

    @property
    def input_place(self) -> str:
        """The file, line and name of the input function."""
        return self._description.input_pipeline.place

    @property
    def metric_names(self) -> tuple[str, ...]:
        """``loss`` and the model file's metrics; final after ``build``."""
        if self._custom_evaluation is not None:
            return self._custom_evaluation.names
        return self._metrics.names

    @property
    def has_call(self) -> bool:
        """Whether the model can be called; one with steps of its own may only call its parts."""
        return overrides(self.model, "call")

    @property
    def layer_states(self) -> tuple[LayerState, ...]:
        """The present state that is not among the weights, such as vocabularies of layers."""
        taken = (*self._description.layer_states.read(), *self._description.other_states)
        return (*taken, *self._description.called_files.states(taken))

    @property
    def inputs(self) -> list[dict[str, Any]] | None:
        """The name, shape and dtype of each input; None if only data can show them."""
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
        """Return the minibatches of one task, the same ones for the same records and seed.

        Close the iterator (``.close()``) if you leave it before its end.

        Args:
            blocks: yields the records of the task in order, in blocks; called once for
                each time that the pipeline reads its source, usually once.
            skip: number of minibatches to leave out at the start.
            columns: names of the columns if the records are CSV rows.

        Raises:
            EdlError: from ``next``: the data or the model file has an error.
        """
        batches = self._description.input_pipeline.batches(
            MinibatchRequest(blocks, mode, minibatch_size, seed, skip, tuple(columns or ()))
        )
        return batches if self._label_check is None else self._label_check.check(batches)

    @property
    def reads_records(self) -> bool:
        """Whether the model file reads the data by itself."""
        return bool(self._description.record_readers)

    def blocks(self, uri: str, start: int, stop: int, read: Blocks) -> Blocks:
        """Return a reader of some records: the model file's own, if it has one.

        Args:
            uri: file of the records ``start`` to ``stop``.
            read: how edl would read them.
        """
        own = next(iter(self._description.record_readers), None)
        return read if own is None else lambda: own(uri, start, stop)

    def process_outputs(self, outputs: Any, worker_id: int) -> None:
        """Give the outputs of a minibatch to the model file's ``PredictionOutputsProcessor``."""
        for process in self._description.outputs_processors:
            process(outputs, worker_id)

    @_exclude_from_autograph
    def call(self, features: Any, training: bool) -> Any:
        """Return the model's outputs; may be traced."""
        with compatibility.provide_removed_names(), check_categories(checks=training):
            return self._description.feature_mapper(features, training)

    @_exclude_from_autograph
    def predict(self, features: Any) -> Any:
        """Return the model's predictions: its outputs, or those of its own ``predict_step``."""
        if not has_custom_predict_step(self.model):
            return self.call(features, training=False)
        with compatibility.provide_removed_names():
            return unwrap_step(self.model, "predict_step")(features)

    @_exclude_from_autograph
    def compute_loss(self, outputs: Any, labels: Any, weights: Any = None) -> Any:
        """Return the loss of a minibatch, a floating scalar; may be traced.

        It is the model file's loss only and does not include ``model.losses`` (regularizers).

        Args:
            weights: how much each example counts; None: all the same.

        Raises:
            RuntimeError: the file was loaded for a purpose that needs no loss.
            EdlError: MODEL_CONTRACT, the loss did not return a floating tensor.
        """
        if self._loss is None:
            raise RuntimeError("the model file was loaded without its loss")
        with compatibility.provide_removed_names():
            value = self._loss.function(outputs=outputs, labels=labels, weights=weights)
        return self._scalar(value)

    @_exclude_from_autograph
    def training_weights(self, labels: Any, weights: Any) -> Any:
        """Return how much each example counts in training: its own weight, or that of its class.

        Raises:
            EdlError: MODEL_CONTRACT, there are both, or several outputs.
        """
        by_class = self._description.class_weight
        if not by_class:
            return weights
        if weights is not None or tf.nest.is_nested(labels):
            raise self._description.contract_error(
                "class_weight cannot be combined with "
                + ("sample weights" if weights is not None else "several outputs"),
                "Yield (features, labels, weights) with one weight per example, and leave "
                "class_weight out.",
            )
        return weigh_by_class(labels, by_class)

    def resolve_callbacks(self, *, validates: bool) -> None:
        """Make callbacks monitor what there is; call ``build`` first.

        Args:
            validates: the job has validation data.

        Raises:
            ContractErrors: one monitors something else, or what should not clearly rise or fall,
                or sets the rate of an optimizer with a schedule.
        """
        measured = self._custom_evaluation or self._metrics
        sources = measured.sources if validates else {}
        place = self.callbacks_place
        errors = resolve_monitors(self.callbacks, sources, place)
        errors += resolve_paths(self.callbacks, sources, place)
        errors += find_fixed_rates(self.callbacks, self._description.optimizer, place)
        if errors:
            raise ContractErrors(errors)

    def new_metrics(self) -> EvaluationMetrics | CustomEvaluationMetrics:
        """Return metrics that have counted nothing yet; call ``build`` first."""
        if self._custom_evaluation is not None:
            return CustomEvaluationMetrics(self._custom_evaluation)
        return EvaluationMetrics(self._metrics)

    def build(self, batch: Batch, *, local: bool = False, has_values: bool = False) -> None:
        """Create all variables and try every function of the model file; train nothing.

        Args:
            batch: any minibatch.
            local: the job trains with local steps.
            has_values: the variables get other values before training, those of layers with
                a state from data, too.

        Raises:
            ContractErrors: parts of the model file do not fit together.
        """
        self.warnings += self._description.called_files.warnings()
        dry_run = DryRun(self._description, self.call, self.compute_loss, self.training_weights)
        try:
            outputs = None
            if self.has_call:
                outputs = dry_run.trace_forward(batch)
            else:
                self._check_steps()
                dry_run.build_parts()
            if self._description.optimizer is not None and not has_values:
                check_adapted(self._description.layer_states.adaptable)
            if self.custom_train_step is not None:
                dry_run.trace_train_step(batch, self.custom_train_step, local=local)
            if self._custom_evaluation is not None:
                dry_run.try_evaluation_step(batch, self._custom_evaluation)
                return
            if outputs is None or batch.labels is None or self._loss is None:
                return
            if self.custom_train_step is None:
                self.warnings += dry_run.check_fit(batch, outputs)
                self._label_check = make_label_check(self._loss, self.model, batch.labels, outputs)
                if self._description.optimizer is not None:
                    self.warnings += dry_run.trace_step(batch)
            sample = TrialSample.take(batch, outputs)
            self.reduction = self._loss.declared_reduction or dry_run.find_reduction(sample)
            dry_run.check_loss_pairs(sample)
            dry_run.try_metrics(self._metrics, sample)
            dry_run.check_metric_pairs(sample)
        except ContractErrors:
            raise
        except EdlError as error:
            raise ContractErrors([error]) from error

    def check_evaluation(self) -> None:
        """Check that the model can be evaluated while it is trained.

        Raises:
            EdlError: MODEL_CONTRACT, it cannot.
        """
        if self._custom_evaluation is None and not self.has_call:
            raise self._description.contract_error(
                f"the model {self.model.name} has neither call nor test_step, so nothing can be "
                "measured on --validation-data",
                "Define call(self, inputs) or test_step(self, data), or leave --validation-data "
                "out.",
            )

    def _check_steps(self) -> None:
        """Check that a model without ``call`` has a step for what it was loaded for."""
        steps = (self.custom_train_step, self._custom_evaluation)
        if not any(steps) and not has_custom_predict_step(self.model):
            raise self._description.contract_error(
                f"the model {self.model.name} has no call",
                "Define call(self, inputs), which returns the outputs.",
            )

    def _scalar(self, value: Any) -> Any:
        assert self._loss is not None
        try:
            tensor = tf.convert_to_tensor(value)
        except (ValueError, TypeError):
            tensor = None
        if tensor is None or not tensor.dtype.is_floating:
            kind = (
                type_with_article(value) if tensor is None else f"a tensor of {tensor.dtype.name}"
            )
            made = value if isinstance(value, type) else type(value)
            raise self._description.contract_error(
                f"{self._loss.signature} returned {kind}, not a floating tensor",
                call_of_loss(made.__name__)
                if issubclass(made, keras.losses.Loss)
                else "Return a scalar, or one value per sample: tf.reduce_mean(...).",
                self._loss.place,
            )
        return tensor if tensor.shape.rank == 0 else tf.reduce_mean(tensor)
