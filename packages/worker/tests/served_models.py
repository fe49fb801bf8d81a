"""Models whose tables a plane serves, and steps on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import StepResult
from edl_worker.engines.tensorflow.embedding.lookup_stages import LayerPurpose, layers_for
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues

DIM = 3
Array = np.ndarray[Any, Any]


class File:
    """The part of a model file that a trainer uses."""

    def __init__(self, model: Any) -> None:
        self.model, self.optimizer = model, keras.optimizers.SGD()

    def call(self, features: Any, training: bool) -> Any:
        return self.model(features, training=training)

    custom_train_step = None

    def training_weights(self, labels: Any, weights: Any) -> Any:
        return weights

    def compute_loss(self, outputs: Any, labels: Any, weights: Any = None) -> Any:
        return tf.reduce_mean(tf.square(outputs - labels))


def build_served(
    make: Callable[[], Any], features: Any, threshold: int = 0
) -> tuple[File, EmbeddingTables]:
    """Return a model as in a job, built on features, with its tables."""
    with layers_for(LayerPurpose.TRAINING):
        file = File(make())
        file.call(features, training=True)
    return file, EmbeddingTables(file, 5, threshold)


def row_of(id_: int, table: int = 0) -> Array:
    """Return some row for each id."""
    return np.random.default_rng([abs(id_), id_ < 0, table]).normal(size=DIM).astype(np.float32)


def rows_for(wanted: RowRequest) -> Array:
    rows = [row_of(i, table) for table, ids in wanted.ids_by_table() for i in ids.tolist()]
    return np.array(rows, np.float32).reshape(-1)


def ids_of(wanted: RowRequest, table: int = 0) -> Array:
    return dict(wanted.ids_by_table())[table]


def step_of(
    file: File, tables: EmbeddingTables, features: Any, labels: Any, size: int
) -> tuple[StepResult, RowRequest]:
    trainer = GradientStep(file, WireValues(Arena(file.model, tables)), tables)
    trainer.prime(batch := Batch(features, labels, size))
    wanted = tables.find_rows(batch, training=True)
    step = trainer.compute(batch, wanted, rows_for(wanted))
    assert trainer.traces == 1
    return step, wanted


def by_id(step: StepResult, wanted: RowRequest, table: int = 0) -> dict[int, Array]:
    gradients = iter(np.frombuffer(step.rows, np.float32).reshape(-1, DIM))
    found = {
        number: {id_: next(gradients) for id_ in ids.tolist()}
        for number, ids in wanted.ids_by_table()
    }
    return found[table]
