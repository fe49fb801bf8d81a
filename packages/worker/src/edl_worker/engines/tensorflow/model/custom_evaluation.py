"""Evaluation with a model's own ``test_step`` or ``compute_metrics``, in states that add up.

The states are the variables of the model's metrics. What the step returns in addition
to them counts as a mean over the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_proto.printable import one_line
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model.custom_steps import StepError, pack_minibatch, unwrap_step
from edl_worker.engines.tensorflow.model.metrics import (
    PLAIN_NAME_REMEDY,
    MetricStates,
    sources_of,
    spread,
)
from edl_worker.model_file.errors import type_with_article

_MEAN = "mean:"
"""Begins the names of states that are the total and the weight of a mean."""


class CustomEvaluation:
    """The evaluation by the model's own step, which is traced once for all tasks.

    Attributes:
        names: of the values that the step gives; final after ``check_sums``.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self.names: tuple[str, ...] = ()
        self.step = tf.function(self._trace, autograph=False, reduce_retracing=True)

    @property
    def sources(self) -> dict[str, keras.metrics.Metric | None]:
        """The Keras metric that each value comes from, if there is one, by name."""
        found: dict[str, keras.metrics.Metric | None] = dict.fromkeys(self.names)
        for metric in self.model.metrics:
            known = sources_of([name for name in self.names if not found[name]], metric)
            is_list = hasattr(metric, "metrics")
            found.update(
                {name: part for name, part in known.items() if is_list or name == metric.name}
            )
        return found

    def _trace(self, features: Any, labels: Any, weights: Any) -> dict[str, Any]:
        logs = unwrap_step(self.model, "test_step")(pack_minibatch(features, labels, weights))
        if not isinstance(logs, dict):
            raise StepError(f"returns {type_with_article(logs)}", "Return a dictionary of numbers.")
        return logs

    def check_sums(self, batch: Batch) -> None:
        """Run the step on a minibatch and on its halves, whose states have to add up.

        Raises:
            StepError: they do not, a metric does not start at zero, or one has a name that logs
                cannot show.
        """
        for metric in self.model.metrics:
            metric.reset_state()
        if any(np.any(np.asarray(v)) for metric in self.model.metrics for v in metric.variables):
            raise StepError("has metrics that do not start at zero", _SUMS_REMEDY)
        half = batch.size // 2
        found = []
        for part in (slice(None), slice(0, half), slice(half, None)) if half else (slice(None),):
            metrics = CustomEvaluationMetrics(self)
            metrics.add(_part(batch, part))
            found.append(dict(metrics.states()))
        self.names = tuple(metrics.result())
        for name in self.names:
            if one_line(name) != name:
                what = f"gives the metric {one_line(name)}, whose name has control characters"
                raise StepError(what, PLAIN_NAME_REMEDY)
        for name, whole in found[0].items():
            parts = [other[name] for other in found[1:]]
            for i, value in enumerate(whole if parts else ()):
                if not np.allclose(value, sum(part[i] for part in parts), 1e-3, 1e-5):
                    raise StepError(
                        f"gives values ({name.removeprefix(_MEAN)}) for a minibatch that "
                        "differ from the sums over its two halves",
                        _SUMS_REMEDY,
                    )


_SUMS_REMEDY = (
    "Keep sums and counts in metrics, so that the states of different workers can be added."
)


class CustomEvaluationMetrics:
    """The metrics of one evaluation task, or of the sum of many; one at a time.

    Its methods are those of ``EvaluationMetrics``.
    """

    def __init__(self, definition: CustomEvaluation) -> None:
        self._definition = definition
        self._means: dict[str, tuple[float, float]] = {}
        for metric in definition.model.metrics:
            metric.reset_state()

    def add(self, batch: Batch, infer: Callable[[Batch], Any] | None = None) -> None:
        """Add a minibatch."""
        logs = self._definition.step(batch.features, batch.labels, batch.weights)
        known = self._read_metrics()
        for name, value in logs.items():
            if name not in known:
                for part, number in spread(name, value).items():
                    total, weight = self._means.get(part, (0.0, 0.0))
                    self._means[part] = total + number * batch.size, weight + batch.size

    def states(self) -> MetricStates:
        """Return the states to report; those of several tasks are added elementwise."""
        means = [
            (_MEAN + name, [np.array(total), np.array(weight)])
            for name, (total, weight) in self._means.items()
        ]
        metrics = self._definition.model.metrics
        return means + [
            (f"{number}:{metric.name}", [np.asarray(v, np.float64) for v in metric.variables])
            for number, metric in enumerate(metrics)
            if metric.variables
        ]

    def load(self, states: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Replace the state by ``states``, usually the sum over all tasks."""
        metrics = self._definition.model.metrics
        for name, values in states:
            if name.startswith(_MEAN):
                total, weight = (float(np.sum(value)) for value in values)
                self._means[name.removeprefix(_MEAN)] = total, weight
                continue
            metric = metrics[int(name.partition(":")[0])]
            for variable, value in zip(metric.variables, values, strict=True):
                variable.assign(np.reshape(value, variable.shape).astype(variable.dtype))

    def result(self) -> dict[str, float]:
        """Return the values by name."""
        means = {name: total / weight for name, (total, weight) in self._means.items() if weight}
        return {**self._read_metrics(), **means}

    def _read_metrics(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, value in self._definition.model.get_metrics_result().items():
            found.update(spread(name, value))
        return found


def _part(batch: Batch, part: slice) -> Batch:
    features, labels, weights = (
        None if nest is None else tf.nest.map_structure(lambda tensor: tensor[part], nest)
        for nest in (batch.features, batch.labels, batch.weights)
    )
    return Batch(features, labels, len(range(batch.size)[part]), weights)
