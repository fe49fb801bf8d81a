"""Evaluation metrics whose states add up over tasks and workers.

The value of a metric over all records must not depend on which worker evaluated which record. So a
task reports states, not values. The states of all tasks are added elementwise, and the values are
computed from the sum. The state of a Keras metric is its variables. Every other metric is a mean;
its state is a total and a weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.printable import one_line
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model.description import AS_IN_KERAS, LOSS, ModelFileDescription
from edl_worker.engines.tensorflow.model.metric_fit import find_replaced_variable
from edl_worker.engines.tensorflow.model.metric_state import find_lost_state
from edl_worker.engines.tensorflow.output_masks import read_masks, set_masks
from edl_worker.model_file.errors import trial_error
from edl_worker.model_file.zoo import compatibility

MetricStates = list[tuple[str, list[np.ndarray]]]

PLAIN_NAME_REMEDY = "Give the metric a name of letters, digits and spaces: logs and pages show it."

# Name to total and weight of a batch.
_Means = dict[str, tuple[Any, Any]]


class MetricComputation:
    """The computation of a model file's metrics, compiled once for all evaluation tasks.

    Args:
        description: of the model file, with its metrics.
        compute_loss: the loss of (outputs, labels, weights); None if the loss is not measured.
        loss_is_sum: whether ``compute_loss`` sums over the batch.
    """

    def __init__(
        self,
        description: ModelFileDescription,
        compute_loss: Callable[[Any, Any, Any], Any] | None,
        loss_is_sum: Callable[[], bool],
    ) -> None:
        self._description = description
        self._compute_loss = compute_loss
        self._loss_is_sum = loss_is_sum
        self._keras = dict(description.metrics.keras_metrics)
        self._value_names = description.metrics.names
        self._compiled = tf.function(self._update, autograph=False, reduce_retracing=True)
        self._eager = False

    @property
    def names(self) -> tuple[str, ...]:
        loss = (LOSS,) if self._compute_loss is not None else ()
        names = [
            self.shown_name(given, name)
            for given, metric in self._keras.items()
            for name in _names(given, metric)
        ]
        return (*loss, *names, *self._value_names)

    def shown_name(self, metric: str, name: str) -> str:
        """Return the name under which a value is reported.

        Args:
            metric: name of the Keras metric that gives the value.
            name: the value's own. As in Keras, it gets ``weighted_`` in front if it is of
                ``weighted_metrics`` and the file has a metric of this name.
        """
        is_taken = name in self._keras or name in self._value_names
        return f"weighted_{name}" if metric == AS_IN_KERAS and is_taken else name

    def check_names(self) -> None:
        """Check that the names of all values, as far as they are known, differ and are plain.

        Raises:
            EdlError: MODEL_CONTRACT.
        """
        for name, count in Counter(self.names).items():
            if one_line(name) != name:
                raise self._description.contract_error(
                    f"the name of the metric {one_line(name)} has control characters",
                    PLAIN_NAME_REMEDY,
                    self._description.metrics.place,
                )
            if count > 1:
                raise self._description.contract_error(
                    f"a metric has the name {LOSS}, under which edl reports the loss itself"
                    if name == LOSS
                    else f"{count} metrics have the name {name}",
                    "Give the metric another name, also where a callback monitors it.",
                    self._description.metrics.place,
                )

    @property
    def sources(self) -> dict[str, keras.metrics.Metric | None]:
        """The Keras metric that each value comes from, if there is one, by name."""
        found: dict[str, keras.metrics.Metric | None] = dict.fromkeys(self.names)
        for given, metric in self._keras.items():
            found.update(
                {
                    self.shown_name(given, name): part
                    for name, part in sources_of(_names(given, metric), metric).items()
                }
            )
        return found

    @property
    def keras_metrics(self) -> Mapping[str, keras.metrics.Metric]:
        return self._keras

    def prepare(self, labels: Any, outputs: Any) -> None:
        """Create the variables of the Keras metrics and learn the names of the other metrics.

        Args:
            labels: of some records.
            outputs: any values of the right shapes for them.

        Raises:
            EdlError: MODEL_CONTRACT, the state of a metric cannot be added, or two values have
                one name.
        """
        values = self._description.metrics.batch_values(outputs=outputs, labels=labels)
        self._keras.update({n: v for n, v in values.items() if isinstance(v, keras.metrics.Metric)})
        self._value_names = tuple(n for n in values if n not in self._keras)
        for name, metric in self._keras.items():
            metric.update_state(labels, outputs)
            if (replaced := find_replaced_variable(metric)) is not None:
                raise self._description.contract_error(*replaced, self._description.metrics.place)
            if (changed := find_lost_state(metric, labels, outputs)) is not None:
                raise self._description.contract_error(*changed)
            metric.reset_state()
            if _is_compiled(metric) and not metric.variables:
                continue  # an empty list of metrics
            starts_at_zero = all(not np.any(np.asarray(v)) for v in metric.variables)
            if not metric.variables or not starts_at_zero:
                raise self._description.contract_error(
                    f"the metric {name} ({type(metric).__name__}) "
                    + ("does not start at zero" if metric.variables else "keeps no variables"),
                    "Create its state with self.add_variable(..., initializer='zeros'), so that "
                    "the states of different workers can be added.",
                )
        self.check_names()

    def check_additive(self, labels: Any, outputs: Any, halves: Any) -> None:
        """Check that the states of the user's own metric classes add up.

        Args:
            halves: two pairs of (labels, outputs) that make up the whole.

        Raises:
            EdlError: MODEL_CONTRACT.
        """
        for name, metric in self._keras.items():
            parts = metric.metrics if _is_compiled(metric) else [metric]
            if all(type(part).__module__.startswith("keras.") for part in parts):
                continue  # the tests of this package cover all metrics of Keras
            if _adds_up(metric, labels, outputs, halves):
                continue
            raise self._description.contract_error(
                f"the states of the metric {name} ({type(metric).__name__}) do not add up: "
                "two halves of a batch give another state than the whole",
                "Keep sums and counts as state, and divide in result().",
            )

    def update(
        self, states: dict[str, list[Any]], labels: Any, outputs: Any, weights: Any = None
    ) -> _Means:
        """Return the means of a batch, and replace the Keras metrics' values in ``states``.

        Raises:
            EdlError: a metric raised.
        """
        given = {name: states[name] for name in self._keras}
        with compatibility.provide_removed_names():
            if self._eager:
                means, updated = self._update_eagerly(given, labels, outputs, weights)
            else:
                try:
                    masks = read_masks(outputs)
                    means, updated = self._compiled(given, labels, outputs, weights, masks)
                except Exception:
                    # Metrics may use numpy, which cannot be traced.
                    means, updated = self._update_eagerly(given, labels, outputs, weights)
                    self._eager = True
        states.update(updated)
        found: _Means = means
        return found

    def _update_eagerly(
        self, states: dict[str, list[Any]], labels: Any, outputs: Any, weights: Any
    ) -> tuple[_Means, dict[str, list[Any]]]:
        try:
            return self._update(states, labels, outputs, weights)
        except Exception as error:
            raise trial_error(
                error,
                self._description.zoo_root,
                action="the evaluation metrics raised",
                place=self._description.metrics.place or self._description.place,
                labels=labels,
            ) from error

    def _update(
        self,
        states: dict[str, list[Any]],
        labels: Any,
        outputs: Any,
        weights: Any,
        masks: list[Any] | None = None,
    ) -> tuple[_Means, dict[str, list[Any]]]:
        if masks is not None:
            set_masks(outputs, masks)
        size = tf.cast(tf.shape(tf.nest.flatten(outputs)[0])[0], tf.float64)
        means: _Means = {}
        if self._compute_loss is not None:
            loss = tf.cast(self._compute_loss(outputs, labels, weights), tf.float64)
            means[LOSS] = (loss if self._loss_is_sum() else loss * size, size)
        if self._value_names:
            values = self._description.metrics.batch_values(outputs=outputs, labels=labels)
            for name, value in values.items():
                if not isinstance(value, keras.metrics.Metric):
                    means[name] = _mean(value, size)
        updated = {
            name: list(
                metric.stateless_update_state(
                    states[name], labels, outputs, *((weights,) if name == AS_IN_KERAS else ())
                )
            )
            for name, metric in self._keras.items()
        }
        return means, updated


class EvaluationMetrics:
    """The metrics of one evaluation task, or of the sum of many.

    ``loss``, the mean over samples, is always one of them.
    """

    def __init__(self, definition: MetricComputation) -> None:
        self._definition = definition
        self._variables: dict[str, list[Any]] = {
            name: [tf.zeros(v.shape, v.dtype) for v in metric.variables]
            for name, metric in definition.keras_metrics.items()
        }
        self._means: dict[str, tuple[float, float]] = {}

    def add(self, batch: Batch, infer: Callable[[Batch], Any]) -> None:
        """Add a minibatch, whose outputs ``infer`` computes."""
        self.update(batch.labels, infer(batch), batch.weights)

    def update(self, labels: Any, outputs: Any, weights: Any = None) -> None:
        """Add a minibatch; the loss and weighted metrics count its sample weights."""
        means = self._definition.update(self._variables, labels, outputs, weights)
        for name, (total, weight) in means.items():
            before = self._means.get(name, (0.0, 0.0))
            self._means[name] = (before[0] + float(total), before[1] + float(weight))

    def states(self) -> MetricStates:
        """Return the states to report; those of several tasks are added elementwise."""
        means = [
            (name, [np.array(total), np.array(weight)])
            for name, (total, weight) in self._means.items()
        ]
        # float64, because sums of counts must be exact beyond 2**24.
        variables = [
            (name, [np.asarray(value, np.float64) for value in values])
            for name, values in self._variables.items()
        ]
        return [*means, *variables]

    def load(self, states: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replace the state by ``states``, usually the sum over all tasks."""
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
        """Return the values by name; a metric with several values has ``name/part`` for each."""
        values: dict[str, float] = {
            name: total / weight if weight else float("nan")
            for name, (total, weight) in self._means.items()
        }
        for name, metric in self._definition.keras_metrics.items():
            mapping = list(zip(metric.variables, self._variables[name], strict=True))
            # Convert within the scope: a result may be a variable itself.
            with keras.StatelessScope(state_mapping=mapping):
                values.update(
                    {
                        self._definition.shown_name(name, key): value
                        for key, value in _values(name, metric).items()
                    }
                )
        order = {name: position for position, name in enumerate(self._definition.names)}
        return dict(sorted(values.items(), key=lambda item: order.get(item[0], len(order))))


def _mean(value: Any, size: Any) -> tuple[Any, Any]:
    """Return the total and weight of a batch: scalars count per sample, tensors per element."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = value[0]  # tf.compat.v1.metrics: (value, update_op)
    tensor = tf.cast(tf.convert_to_tensor(value), tf.float64)
    if tensor.shape.rank == 0:
        return tensor * size, size
    return tf.reduce_sum(tensor), tf.cast(tf.size(tensor), tf.float64)


def _is_compiled(metric: keras.metrics.Metric) -> bool:
    """Whether it stands for the metrics of a list or dictionary, as in ``model.compile``."""
    return hasattr(metric, "metrics")


def _names(name: str, metric: keras.metrics.Metric) -> list[str]:
    """Return the names of the values of a metric, as far as they are known."""
    if not _is_compiled(metric):
        return [name]
    return list(_values(name, metric)) if metric.built else []


def sources_of(
    names: Iterable[str], metric: keras.metrics.Metric
) -> dict[str, keras.metrics.Metric | None]:
    """Return by name the part of a metric that gives each of its values."""
    metric = getattr(metric, "metric", metric)  # of one output
    if not _is_compiled(metric):
        return dict.fromkeys(names, metric)
    found: dict[str, keras.metrics.Metric | None] = {}
    for name in names:
        # Keras puts the name of the output in front.
        ends = [part for part in metric.metrics if f"_{name}".endswith(f"_{part.name}")]
        found[name] = max(ends, key=lambda part: len(part.name), default=None)
    return found


def _values(name: str, metric: keras.metrics.Metric) -> dict[str, float]:
    value = metric.result()
    if not _is_compiled(metric):
        return spread(name, value)
    named = {name or key: inner for key, inner in value.items()}
    parts = [spread(key, inner) for key, inner in named.items()]
    return {key: number for part in parts for key, number in part.items()}


def spread(name: str, value: Any) -> dict[str, float]:
    """Return the numbers of a value by name: ``name/part`` for each of several."""
    if isinstance(value, Mapping):
        parts = [spread(f"{name}/{key}", inner) for key, inner in value.items()]
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
