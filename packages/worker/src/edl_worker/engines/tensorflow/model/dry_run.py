"""Tries the functions of a model file on a minibatch before training, without training."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model.adapters.optimizer import check_supported
from edl_worker.engines.tensorflow.model.broadcast_check import Measure, broadcast_shapes
from edl_worker.engines.tensorflow.model.custom_evaluation import CustomEvaluation
from edl_worker.engines.tensorflow.model.custom_steps import CustomTrainStep, StepError
from edl_worker.engines.tensorflow.model.description import ModelFileDescription, Reduction
from edl_worker.engines.tensorflow.model.forward_trace import specs, succeeds, trace_forward
from edl_worker.engines.tensorflow.model.loss_fit import explain_raised, find_misfit, weights_error
from edl_worker.engines.tensorflow.model.metric_fit import find_metric_misfit, warn_of_logits
from edl_worker.engines.tensorflow.model.metrics import EvaluationMetrics, MetricComputation
from edl_worker.engines.tensorflow.model.scaled_twice import warn_of_scaled_twice
from edl_worker.engines.tensorflow.model.trial_sample import TrialSample
from edl_worker.engines.tensorflow.model.untrained_weights import (
    warn_of_unconnected,
    warn_of_untracked,
)
from edl_worker.model_file.errors import place_of, trial_error
from edl_worker.model_file.frames import user_frames
from edl_worker.model_file.zoo import compatibility


class DryRun:
    """A dry run: it traces the model and a whole step, then tries the loss and the metrics.

    Args:
        call: the model's outputs of (features, training).
        compute_loss: the loss of (outputs, labels, weights).
        weigh: the weights of examples in training, of (labels, weights).
    """

    def __init__(
        self,
        description: ModelFileDescription,
        call: Callable[[Any, bool], Any],
        compute_loss: Callable[..., Any],
        weigh: Callable[[Any, Any], Any],
    ) -> None:
        self._description = description
        self._call = call
        self._compute_loss = compute_loss
        self._weigh = weigh

    def trace_forward(self, batch: Batch) -> Any:
        """Create the model's variables with their initial values.

        Returns:
            The specifications (shape and dtype) of the outputs.

        Raises:
            EdlError: the model raised.
        """
        return trace_forward(self._description, self._call, batch)

    def build_parts(self) -> None:
        """Check that a model that is never called itself has all its variables.

        Raises:
            EdlError: a layer has not been built.
        """
        model = self._description.model
        unbuilt = [layer.name for layer in model.layers if not layer.built]
        if unbuilt:
            raise self._description.contract_error(
                f"the model {model.name} has no call, and its {unbuilt[0]} no known input, so its "
                "variables are not known before training",
                "Begin each part with keras.Input(...), build it in the model file, or define "
                "call(self, inputs).",
            )
        model.built = True

    def check_fit(self, batch: Batch, outputs: Any) -> tuple[str, ...]:
        """Check that loss and metrics of Keras can be meant for these labels and outputs.

        Args:
            outputs: what ``trace_forward`` returned.

        Returns:
            Warnings of a loss that can hardly be meant.

        Raises:
            EdlError: SHAPE_MISMATCH, with the loss or metric that fits.
        """
        loss = self._description.loss
        assert loss is not None, "the loss is tried"
        error, warnings = find_misfit(loss, self._description.model, batch.labels, outputs)
        metrics, model = self._description.metrics, self._description.model
        error = error or find_metric_misfit(metrics, model, batch.labels, outputs)
        if error is not None:
            raise error
        twice = warn_of_scaled_twice(self._description.feature_mapper.pair(batch.features))
        return (*warnings, *warn_of_logits(metrics, model, batch.labels, outputs), *twice)

    def trace_step(self, batch: Batch) -> tuple[str, ...]:
        """Trace the forward pass, the loss and the gradients.

        Returns:
            Warnings of weights that training does not change.

        Raises:
            EdlError: the loss raised, or does not depend on the model.
        """
        variables = self._description.model.trainable_variables

        def step(features: Any, labels: Any, weights: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self._call(features, True)
                loss = self._compute_loss(outputs, labels, self._weigh(labels, weights))
            gradients[:] = tape.gradient(loss, [v.value for v in variables])
            return loss

        gradients: list[Any] = []

        def trace(weights: Any) -> None:
            tf.function(step, autograph=False).get_concrete_function(
                specs(batch.features), specs(batch.labels), specs(weights)
            )

        try:
            trace(batch.weights)
        except EdlError:
            raise
        except Exception as error:
            if batch.weights is not None and succeeds(trace, None):
                place = self._description.input_pipeline.place
                raise weights_error(batch.weights, batch.size, place) from error
            raise self._loss_error(error, batch.labels) from error
        if variables and not any(gradient is not None for gradient in gradients):
            loss = self._description.loss
            raise self._description.contract_error(
                "the loss does not depend on the model's weights, so training would change nothing",
                "Compute the loss from the predictions, with operations that have gradients "
                "(tf.argmax, tf.equal and .numpy() have none).",
                loss.place if loss is not None else "",
            )
        untracked = warn_of_untracked(self._description.model)
        return (*warn_of_unconnected(variables, gradients), *untracked)

    def trace_train_step(self, batch: Batch, step: CustomTrainStep, *, local: bool) -> None:
        """Trace the model's own training step.

        Args:
            local: workers run it as it is, with local steps.

        Raises:
            EdlError: the step raised, or cannot be distributed.
        """
        variables = self._description.model.trainable_variables

        def run_step(features: Any, labels: Any, weights: Any) -> Any:
            weights = self._weigh(labels, weights)
            if local:
                return step.run(features, labels, weights)
            return step.gradients(features, labels, weights, variables)

        with self._explain_errors("train_step"):
            tf.function(run_step, autograph=False).get_concrete_function(
                specs(batch.features), specs(batch.labels), specs(batch.weights)
            )
            if step.optimizer is None:
                raise StepError(
                    "uses an optimizer that is no attribute of the model", _ATTRIBUTE_REMEDY
                )
            for each in (step.optimizer, *(other.optimizer for other in step.others)):
                replicated = self._description.replicated is not False
                check_supported(each, "train_step", self._description.place, replicated)

    def try_evaluation_step(self, batch: Batch, evaluation: CustomEvaluation) -> None:
        """Run the model's own evaluation step.

        Raises:
            EdlError: the step raised, or its states do not add up.
        """
        with self._explain_errors("test_step"):
            evaluation.check_sums(batch)

    @contextmanager
    def _explain_errors(self, step: str) -> Iterator[None]:
        name = f"{type(self._description.model).__name__}.{step}"
        try:
            yield
        except StepError as error:
            place = place_of(getattr(type(self._description.model), step))
            raise self._description.contract_error(
                f"{name} {error.what}", error.remedy, place
            ) from error
        except EdlError:
            raise
        except Exception as error:
            raise self._step_error(error, name, self._description.place) from error

    def find_reduction(self, sample: TrialSample) -> Reduction:
        """``sum`` if twice the batch gives twice the loss, otherwise ``mean``.

        Raises:
            EdlError: the loss raised, or its shape fits no number of examples.
        """
        try:
            single = float(self._compute_loss(sample.outputs, sample.labels))
            double = float(self._compute_loss(*sample.repeat()))
            self._check_loss_shape(sample)
        except EdlError:
            raise
        except Exception as error:
            raise self._loss_error(error, sample.labels) from error
        doubled = abs(double - 2 * single) <= 1e-4 * abs(double)
        return "sum" if doubled and single != 0 else "mean"

    def check_loss_pairs(self, sample: TrialSample) -> None:
        """Check that the loss compares each output with its own label only.

        Raises:
            EdlError: SHAPE_MISMATCH, labels and outputs are broadcast against each other.
        """
        loss = self._description.loss
        assert loss is not None, "the loss is tried"

        def measure(labels: Any, outputs: Any) -> dict[str, Any]:
            return {loss.signature: loss.function(outputs=outputs, labels=labels)}

        self._check_pairs(measure, sample, loss.place)

    def check_metric_pairs(self, sample: TrialSample) -> None:
        """Check that functions among the metrics compare each output with its own label only.

        Raises:
            EdlError: SHAPE_MISMATCH, labels and outputs are broadcast against each other.
        """

        def measure(labels: Any, outputs: Any) -> dict[str, Any]:
            values = self._description.metrics.batch_values(outputs=outputs, labels=labels)
            return {
                f"the metric {name}": value
                for name, value in values.items()
                if not isinstance(value, keras.metrics.Metric)
            }

        self._check_pairs(measure, sample, self._description.place)

    def _check_pairs(self, measure: Measure, sample: TrialSample, place: str) -> None:
        with compatibility.provide_removed_names():
            found = broadcast_shapes(measure, sample.labels, sample.outputs)
        for name, shapes in found.items():
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{name} compares each label with each output: it broadcasts {shapes} to (n, n)",
                where=place,
                remedy="Give both one shape: tf.reshape(labels, tf.shape(outputs)), or the same "
                "in the input function.",
            )

    def _check_loss_shape(self, sample: TrialSample) -> None:
        """Check that the loss is one number, or that their number grows as that of examples.

        Labels and outputs that were broadcast against each other give as many as its square.
        """
        loss = self._description.loss
        assert loss is not None, "the loss is tried"
        outputs, labels = sample.repeat()
        with compatibility.provide_removed_names():
            once = loss.function(outputs=sample.outputs, labels=sample.labels)
            twice = loss.function(outputs=outputs, labels=labels)
        one, two = tuple(np.shape(once)), tuple(np.shape(twice))
        grown = [b == 2 * a for a, b in zip(one, two, strict=False) if a != b]
        is_scalar = math.prod(one) == math.prod(two) == 1
        if not is_scalar and (len(one) != len(two) or grown != [True]):
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{loss.signature} returned values of shape {one} for {sample.size} examples and "
                f"of shape {two} for {2 * sample.size}",
                where=loss.place,
                remedy="Return a scalar, or one value per example. Labels and predictions of "
                "different shapes are broadcast against each other: reshape one of them.",
            )

    def try_metrics(self, metrics: MetricComputation, sample: TrialSample) -> None:
        """Create the state of the metrics and check that their states add up.

        Raises:
            EdlError: a metric raised, or its states do not add up.
        """
        half = sample.size // 2
        try:
            with compatibility.provide_removed_names():
                metrics.prepare(sample.labels, sample.outputs)
                if sample.size > 1:
                    halves = [sample.part(slice(0, half)), sample.part(slice(half, None))]
                    metrics.check_additive(sample.labels, sample.outputs, halves)
                EvaluationMetrics(metrics).update(sample.labels, sample.outputs)
        except EdlError:
            raise
        except Exception as error:
            place, what = self._description.metrics.place, "the evaluation metrics raised"
            raise self._error(error, what, sample.labels, place) from error

    def _loss_error(self, error: Exception, labels: Any) -> EdlError:
        loss = self._description.loss
        assert loss is not None, "the loss is tried"
        names = getattr(self._description.model, "output_names", None) or ()
        if isinstance(labels, Mapping) and len(names) > 1 and set(labels) != set(names):
            return EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the input function yields labels named {', '.join(sorted(labels))}, but the "
                f"outputs of the model are {', '.join(names)}",
                where=self._description.input_pipeline.place,
                remedy="Use the names of the outputs as the keys of the labels.",
            )
        given = len(tf.nest.flatten(labels))
        if len(names) > given and re.search("structure|The path: ", str(error)):
            return EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the model has {len(names)} outputs ({', '.join(names)}), and the input function "
                f"yields {given} label{'s' * (given != 1)}",
                where=self._description.input_pipeline.place,
                remedy="Yield one label for each output, as a tuple in their order or a dictionary "
                "by their names: return features, (label, other).",
            )
        return self._step_error(error, loss.signature, loss.place, labels)

    def _step_error(self, error: Exception, name: str, place: str, labels: Any = None) -> EdlError:
        """Return the error for what may have called a loss that does not fit."""
        innermost = [place, *user_frames(error, self._description.zoo_root)][-1]
        found = explain_raised(error, str(innermost))
        return found or self._error(error, f"{name} raised", labels, place)

    def _error(
        self, error: Exception, action: str, labels: Any = None, place: str = ""
    ) -> EdlError:
        return trial_error(
            error,
            self._description.zoo_root,
            action=action,
            place=place or self._description.place,
            labels=labels,
        )


_ATTRIBUTE_REMEDY = "Keep every optimizer as an attribute of the model."
