"""Evaluation metrics whose states add up over tasks and workers.

A metric's value over all records must not depend on how they were spread. So a task reports
states, not values; states of different tasks add up elementwise, and only the sum is turned
into values. A Keras metric's state is its variables; every other metric is a mean, whose state
is a total and a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import BoundFunction, Definition
from edl_worker.model_file.zoo import compatibility
from elasticdl.python.common.constants import Mode

MetricStates = list[tuple[str, list[np.ndarray]]]

LOSS = "loss"

# What a metrics function may return for a batch, and what a compiled update returns.
_Means = dict[str, tuple[Any, Any]]


class MetricComputation:
    """What a model file measures; compiled once, used by every evaluation task.

    Args:
        compute_loss: of (outputs, labels).
        loss_is_sum: whether ``compute_loss`` sums over the batch.
        fixed: Keras metrics and functions by name, from ``eval_metrics_fn()``.
        per_batch: a function that returns a batch's metrics by name, from
            ``eval_metrics_fn(predictions, labels)`` or ``create_metrics``.
        refuse: makes the error for (what, remedy).
        blame: makes the error for what a metric raised.
    """

    def __init__(
        self,
        compute_loss: Callable[[Any, Any], Any] | None,
        loss_is_sum: Callable[[], bool],
        fixed: Mapping[str, keras.metrics.Metric | BoundFunction],
        per_batch: BoundFunction | None,
        *,
        refuse: Callable[[str, str], EdlError],
        blame: Callable[[Exception], EdlError],
    ) -> None:
        self._compute_loss = compute_loss
        self._loss_is_sum = loss_is_sum
        self._functions = {n: f for n, f in fixed.items() if isinstance(f, BoundFunction)}
        self._keras = {n: m for n, m in fixed.items() if not isinstance(m, BoundFunction)}
        self._per_batch = per_batch
        self._refuse = refuse
        self._blame = blame
        self._per_batch_names: tuple[str, ...] = ()
        self._compiled = tf.function(self._update, autograph=False, reduce_retracing=True)
        self._eager = False

    @property
    def names(self) -> tuple[str, ...]:
        loss = (LOSS,) if self._compute_loss is not None else ()
        names = (*loss, *self._keras, *self._functions, *self._per_batch_names)
        return tuple(dict.fromkeys(names))

    @property
    def keras_metrics(self) -> Mapping[str, keras.metrics.Metric]:
        return self._keras

    def prepare(self, labels: Any, outputs: Any) -> None:
        """Makes the Keras metrics' variables exist and learns the names of the others.

        Args:
            labels: of some records.
            outputs: values of the right shapes for them; what they are does not matter.
        """
        if self._per_batch is not None:
            found = self._call_per_batch(labels, outputs)
            metrics = {n: v for n, v in found.items() if isinstance(v, keras.metrics.Metric)}
            self._keras.update(metrics)
            if len(metrics) == len(found):
                self._per_batch = None  # the same ones serve every batch
            else:
                self._per_batch_names = tuple(n for n in found if n not in metrics)
        for name, metric in self._keras.items():
            metric.update_state(labels, outputs)
            metric.reset_state()
            starts_at_zero = all(not np.any(np.asarray(v)) for v in metric.variables)
            if not metric.variables or not starts_at_zero:
                raise self._refuse(
                    f"the metric {name} ({type(metric).__name__}) "
                    + ("does not start at zero" if metric.variables else "keeps no variables"),
                    "Create its state by self.add_variable(..., initializer='zeros'), so that "
                    "the states of different workers can be added.",
                )

    def check_additive(self, labels: Any, outputs: Any, halves: Any) -> None:
        """Refuses Keras metrics whose states do not add up.

        Args:
            halves: two pairs of (labels, outputs) that make up the whole.
        """
        for name, metric in self._keras.items():
            if type(metric).__module__.startswith("keras."):
                continue  # all of Keras's are tested to add up
            if _adds_up(metric, labels, outputs, halves):
                continue
            raise self._refuse(
                f"the states of the metric {name} ({type(metric).__name__}) do not add up: "
                "two halves of a batch give another state than the whole",
                "Keep sums and counts as state, and divide in result().",
            )

    def update(self, states: dict[str, list[Any]], labels: Any, outputs: Any) -> _Means:
        """New means of a batch; ``states`` of the Keras metrics are replaced in place."""
        given = {name: states[name] for name in self._keras}
        with compatibility.served():
            if self._eager:
                means, updated = self._update_eagerly(given, labels, outputs)
            else:
                try:
                    means, updated = self._compiled(given, labels, outputs)
                except Exception:
                    # Metrics may use numpy, which cannot be traced.
                    means, updated = self._update_eagerly(given, labels, outputs)
                    self._eager = True
        states.update(updated)
        found: _Means = means
        return found

    def _update_eagerly(
        self, states: dict[str, list[Any]], labels: Any, outputs: Any
    ) -> tuple[_Means, dict[str, list[Any]]]:
        try:
            return self._update(states, labels, outputs)
        except Exception as error:
            raise self._blame(error) from error

    def _update(
        self, states: dict[str, list[Any]], labels: Any, outputs: Any
    ) -> tuple[_Means, dict[str, list[Any]]]:
        size = tf.cast(tf.shape(tf.nest.flatten(outputs)[0])[0], tf.float64)
        means: _Means = {}
        if self._compute_loss is not None:
            loss = tf.cast(self._compute_loss(outputs, labels), tf.float64)
            means[LOSS] = (loss if self._loss_is_sum() else loss * size, size)
        for name, function in self._functions.items():
            means[name] = _mean(function(labels=labels, outputs=outputs), size)
        if self._per_batch is not None:
            for name, value in self._call_per_batch(labels, outputs).items():
                if isinstance(value, keras.metrics.Metric):
                    continue
                means[name] = _mean(value, size)
        updated = {
            name: list(metric.stateless_update_state(states[name], labels, outputs))
            for name, metric in self._keras.items()
        }
        return means, updated

    def _call_per_batch(self, labels: Any, outputs: Any) -> dict[str, Any]:
        assert self._per_batch is not None
        found = self._per_batch(labels=labels, outputs=outputs, mode=Mode.EVALUATION)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise self._refuse(
                f"{self._per_batch.part.signature} returned a {type(found).__name__}",
                "Return a dictionary: metric name to value.",
            )
        return dict(found)


class EvaluationMetrics:
    """Metrics of one evaluation task, or of the sum of many.

    Always has ``loss``, the mean over samples, beside what the model file names.
    """

    def __init__(self, definition: MetricComputation) -> None:
        self._definition = definition
        self._variables: dict[str, list[Any]] = {
            name: [tf.zeros(v.shape, v.dtype) for v in metric.variables]
            for name, metric in definition.keras_metrics.items()
        }
        self._means: dict[str, tuple[float, float]] = {}

    def update(self, labels: Any, outputs: Any) -> None:
        """Takes a minibatch into account."""
        means = self._definition.update(self._variables, labels, outputs)
        for name, (total, weight) in means.items():
            before = self._means.get(name, (0.0, 0.0))
            self._means[name] = (before[0] + float(total), before[1] + float(weight))

    def states(self) -> MetricStates:
        """Values that, added elementwise over tasks, stand for all of them together."""
        means = [
            (name, [np.array(total), np.array(weight)])
            for name, (total, weight) in self._means.items()
        ]
        # float64, since sums of counts must stay exact beyond 2**24.
        variables = [
            (name, [np.asarray(value, np.float64) for value in values])
            for name, values in self._variables.items()
        ]
        return [*means, *variables]

    def load(self, states: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replaces what was counted so far by ``states``, usually a sum."""
        self._means = {}
        for name, values in states:
            metric = self._definition.keras_metrics.get(name)
            if metric is None:
                total, weight = values
                self._means[name] = (float(np.sum(total)), float(np.sum(weight)))
            else:
                self._variables[name] = [
                    tf.cast(np.reshape(value, variable.shape), variable.dtype)
                    for value, variable in zip(values, metric.variables, strict=True)
                ]

    def result(self) -> dict[str, float]:
        """Values by name; a metric with several values has ``name/part`` for each."""
        values: dict[str, float] = {
            name: total / weight if weight else float("nan")
            for name, (total, weight) in self._means.items()
        }
        for name, metric in self._definition.keras_metrics.items():
            mapping = list(zip(metric.variables, self._variables[name], strict=True))
            # The values are taken within the scope: a result may be a variable itself.
            with keras.StatelessScope(state_mapping=mapping):
                values.update(_spread(name, metric.result()))
        order = {name: position for position, name in enumerate(self._definition.names)}
        return dict(sorted(values.items(), key=lambda item: order.get(item[0], len(order))))


def read_metrics(
    part: Definition, value: Any, bind_function: Callable[[Definition], BoundFunction]
) -> dict[str, Any]:
    """Metrics by name from what ``eval_metrics_fn()`` returned.

    Raises:
        EdlError: MODEL_CONTRACT, naming the entry that is no metric.
    """
    if not isinstance(value, Mapping):
        raise _no_metric(part, f"{part.signature} returned a {type(value).__name__}")
    found: dict[str, Any] = {}
    for name, metric in value.items():
        if isinstance(metric, type) and issubclass(metric, keras.metrics.Metric):
            metric = metric()
        if isinstance(metric, keras.metrics.Metric):
            found[str(name)] = metric
        elif callable(metric):
            found[str(name)] = bind_function(Definition("metric", str(name), metric))
        else:
            raise _no_metric(
                part, f"the metric {name} of {part.signature} is a {type(metric).__name__}"
            )
    return found


def _no_metric(part: Definition, what: str) -> EdlError:
    return EdlError(
        error_pb2.MODEL_CONTRACT,
        what,
        where=part.where,
        remedy="Return a dictionary: metric name to a Keras metric or a function "
        "(labels, predictions) of a scalar or of one value per sample.",
    )


def _mean(value: Any, size: Any) -> tuple[Any, Any]:
    """Total and weight of a batch: a scalar counts for each sample, a tensor for each element."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = value[0]  # tf.compat.v1.metrics: (value, update_op)
    tensor = tf.cast(tf.convert_to_tensor(value), tf.float64)
    if tensor.shape.rank == 0:
        return tensor * size, size
    return tf.reduce_sum(tensor), tf.cast(tf.size(tensor), tf.float64)


def _spread(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, Mapping):
        parts = [_spread(f"{name}/{key}", inner) for key, inner in value.items()]
        return {key: number for part in parts for key, number in part.items()}
    array = np.asarray(keras.ops.convert_to_numpy(value), np.float64)
    if array.size == 1:
        return {name: float(array.reshape(()))}
    return {f"{name}/{index}": float(number) for index, number in enumerate(array.reshape(-1))}


def _adds_up(metric: keras.metrics.Metric, labels: Any, outputs: Any, halves: Any) -> bool:
    zeros = [tf.zeros(v.shape, v.dtype) for v in metric.variables]
    whole = metric.stateless_update_state(zeros, labels, outputs)
    parts = [metric.stateless_update_state(zeros, *half) for half in halves]
    return all(
        np.allclose(np.asarray(one), sum(np.asarray(part[i]) for part in parts), 1e-4, 1e-6)
        for i, one in enumerate(whole)
    )
