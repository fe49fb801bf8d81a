"""Evaluation tasks: metric states of one task, and values from the sum of all states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from edl_worker.core.batch import Batch
from edl_worker.core.step_engine import ModelEngine
from edl_worker.core.tasks import MetricState, TaskResult
from edl_worker.tasks.lookahead import Lookahead


def evaluate(
    engine: ModelEngine,
    infer: Callable[[Batch], Any],
    batches: Lookahead[Batch],
    before_minibatch: Callable[[int, Batch], None],
) -> TaskResult:
    """Run a task's minibatches through model and metrics.

    Args:
        before_minibatch: called before each one; may raise.

    Returns:
        The metric states of the task; its number of records is left to the caller.
    """
    metrics = engine.new_metrics()
    minibatches = examples = 0
    while (batch := batches.take()) is not None:
        before_minibatch(minibatches, batch)
        metrics.add(batch, infer)
        minibatches += 1
        examples += batch.size
    states = tuple(
        MetricState(name, tuple(np.asarray(value) for value in variables))
        for name, variables in metrics.states()
    )
    return TaskResult(minibatches=minibatches, examples=examples, metric_states=states)


def summarize(engine: ModelEngine, states: Iterable[MetricState]) -> TaskResult:
    """Turn the sum of the metric states of all tasks into the values of the metrics."""
    metrics = engine.new_metrics()
    metrics.load([(state.name, list(state.variables)) for state in states])
    values = {name: float(value) for name, value in metrics.result().items()}
    return TaskResult(metrics=values)
