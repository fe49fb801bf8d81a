"""Minibatches for replicas, what ``fit`` makes of them, and what several replicas make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.replica_steps import ReplicaSteps

SIZE, STEPS = 8, 5
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(SIZE * STEPS, 3)).astype(np.float32)
Y = RANDOM.normal(size=(SIZE * STEPS, 2)).astype(np.float32)


def batch_of(start: int, stop: int, x: Any = X, y: Any = Y) -> Batch:
    return Batch(tf.constant(x[start:stop]), tf.constant(y[start:stop]), stop - start)


BATCHES = [batch_of(at, at + SIZE) for at in range(0, len(X), SIZE)]


def fit(file: ModelFile, count: int = STEPS) -> None:
    """Train the model as Keras does; step by step, as tracing takes longer than the few steps."""
    if not file.model.compiled:
        file.model.compile(file.optimizer, "mse")
    file.model.run_eagerly = True
    if isinstance(file.optimizer, keras.optimizers.ScheduleFreeAdamW):
        # Keras 3.15 would take zeros for the initial values.
        file.optimizer.build(file.model.trainable_variables)
    end = count * SIZE
    file.model.fit(X[:end], Y[:end], batch_size=SIZE, shuffle=False, verbose=0)


def reduce_steps(steps: ReplicaSteps, batches: Sequence[Batch]) -> None:
    """Make one step of several replicas that have the same values."""
    weight = sum(batch.size for batch in batches)
    total = [np.zeros(part.count, part.dtype) for part in steps.replica_parts]
    groups = steps.layout.model.groups
    trainable = sum(group.trainable for group in groups)
    has_delta = False
    for batch in batches:
        result = steps.gradient(batch)
        assert result.is_finite
        has_delta = bool(result.state_delta)
        parts = (*result.gradient, *result.state_delta)
        for group, added, part in zip(groups, total, parts, strict=False):
            added += np.frombuffer(part, group.dtype) * (batch.size / weight)
    for part in total:
        part.flags.writeable = False  # it is memory of all replicas
    steps.apply(total[:trainable], total[trainable:] if has_delta else [])
