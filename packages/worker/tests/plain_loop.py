"""Training and evaluation with a model file, in a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile
from elasticdl.python.common.constants import Mode


def in_blocks(records: Sequence[bytes], size: int = 7) -> Callable[[], Iterator[list[bytes]]]:
    return lambda: (list(records[i : i + size]) for i in range(0, len(records), size))


def batches(
    model_file: ModelFile,
    records: Sequence[bytes],
    *,
    mode: Mode = Mode.TRAINING,
    size: int = 16,
    seed: int = 3,
    **more: Any,
) -> list[Batch]:
    return list(
        model_file.batches(in_blocks(records), mode=mode, minibatch_size=size, seed=seed, **more)
    )


def train(
    model_file: ModelFile, records: Sequence[bytes], *, epochs: int = 1, size: int = 16, **more: Any
) -> list[float]:
    """Return the loss of each step of a plain loop; all epochs have the same minibatches."""
    found = batches(model_file, records, size=size, seed=0, **more)
    model_file.build(found[0])
    variables = model_file.model.trainable_variables
    model_file.optimizer.build(variables)

    @tf.function
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model_file.call(features, training=True)
            loss = model_file.compute_loss(outputs, labels)
        gradients = tape.gradient(loss, [v.value for v in variables])
        model_file.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return [float(step(batch.features, batch.labels)) for _ in range(epochs) for batch in found]


def evaluate(
    model_file: ModelFile, records: Sequence[bytes], *, size: int = 64, **more: Any
) -> dict[str, float]:
    metrics = model_file.new_metrics()
    for batch in batches(model_file, records, mode=Mode.EVALUATION, size=size, **more):
        metrics.update(batch.labels, model_file.call(batch.features, training=False))
    return metrics.result()
