"""Evaluation tasks: metric states of one task, and values from the sum of all states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.tasks import MetricState, TaskResult
from edl_worker.engines.tensorflow.embedding.lookup_stages import in_stage
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables, RowRequest
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction
from edl_worker.tasks.lookahead import Lookahead


class Inference:
    """The model's outputs without training."""

    def __init__(
        self,
        model_file: ModelFile,
        tables: EmbeddingTables | None = None,
        *,
        predicts: bool = False,
    ) -> None:
        """Prepare to call a model.

        Args:
            model_file: the model.
            predicts: use the model's ``predict_step`` if it defines one.
            tables: its embedding tables, if a master serves them: ``rows`` must be set then.
        """
        self._file = model_file
        self._predicts = predicts
        self._tables = tables
        self._lookups: tuple[int, ...] = ()
        self._call = SizeAgnosticFunction(self._trace)
        self.rows: Callable[[RowRequest], Sequence[Any]] | None = None

    def __call__(self, batch: Batch) -> Any:
        if self._tables is None or self.rows is None:
            return self._call(batch.size, batch.features)
        wanted = self._tables.wanted(batch, training=False)
        self._lookups = wanted.tables
        rows = [tf.convert_to_tensor(part) for part in self.rows(wanted)]
        return self._call(batch.size, batch.features, open_nests=(rows, list(wanted.at)))

    def _trace(self, features: Any, rows: Any = (), at: Any = ()) -> Any:
        stage = None if self._tables is None else self._tables.serving(self._lookups, rows, at)
        with in_stage(stage):
            if self._predicts:
                return self._file.predict(features)
            return self._file.call(features, training=False)


def evaluate(
    model_file: ModelFile,
    infer: Inference,
    batches: Lookahead[Batch],
    before_minibatch: Callable[[int, Batch], None],
) -> TaskResult:
    """Run a task's minibatches through model and metrics.

    Args:
        before_minibatch: called before each one; may raise.

    Returns:
        The metric states of the task; its number of records is left to the caller.
    """
    metrics = model_file.new_metrics()
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


def summarize(model_file: ModelFile, states: Iterable[MetricState]) -> TaskResult:
    """Turn the sum of the metric states of all tasks into the values of the metrics."""
    metrics = model_file.new_metrics()
    metrics.load([(state.name, list(state.variables)) for state in states])
    values = {name: float(value) for name, value in metrics.result().items()}
    return TaskResult(metrics=values)
