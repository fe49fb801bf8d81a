"""What training should give, by a plain loop in one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from edl_proto.v1 import job_pb2, task_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.codec.tasks import decode_lease
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow import weights
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from edl_worker.model_file.sample import first_batch
from edl_worker.tasks.record_reading import read
from elasticdl.python.common.constants import Mode

Named = dict[str, np.ndarray[Any, Any]]


def load_model(job: job_pb2.JobSpec) -> ModelFile:
    """Return the model of a job as a worker begins with it."""
    known = decode_job(job)
    file = load_model_file(known.model, seed=known.training.seed)
    file.build(first_batch(file, known, Mode.TRAINING, known.minibatch_size))
    return file


def batches(file: ModelFile, job: job_pb2.JobSpec, lease: task_pb2.Lease) -> list[Batch]:
    return list(
        file.batches(
            lambda: read(decode_lease(lease).records, decode_job(job).data_cache),
            mode=Mode.TRAINING,
            minibatch_size=job.minibatch_size,
            seed=lease.seed,
        )
    )


def train(
    job: job_pb2.JobSpec, leases: Iterable[task_pb2.Lease], *, rate: float, together: int = 1
) -> Named:
    """Train tasks in order with SGD; ``together`` minibatches make one large one.

    Tests that train the same share the result.

    Returns:
        All float values by name, moving statistics included.
    """
    leases = list(leases)
    messages = (each.SerializeToString(deterministic=True) for each in (job.model, *leases))
    key = (*messages, *job.data, job.minibatch_size, job.training.seed, rate, together)
    if key not in _trained:
        _trained[key] = _train(job, leases, rate, together)
    return _trained[key]


_trained: dict[tuple[Any, ...], Named] = {}


def _train(job: job_pb2.JobSpec, leases: list[task_pb2.Lease], rate: float, together: int) -> Named:
    file = load_model(job)
    waiting = [batch for lease in leases for batch in batches(file, job, lease)]
    for start in range(0, len(waiting), together):
        step(file, waiting[start : start + together], rate)
    return weights.of_model(file.model)


def step(file: ModelFile, parts: Sequence[Batch], rate: float) -> None:
    """One update; each part's own batch statistics, averaged by records."""
    model = file.model
    total = sum(part.size for part in parts)
    moved = [v for v in model.non_trainable_variables if "float" in v.dtype]
    before = [v.numpy() for v in moved]
    gradients = [np.zeros(v.shape, np.float32) for v in model.trainable_variables]
    after = [np.zeros_like(value) for value in before]
    for part in parts:
        for variable, value in zip(moved, before, strict=True):
            variable.assign(value)
        with tf.GradientTape() as tape:
            loss = file.compute_loss(file.call(part.features, training=True), part.labels)
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        for sum_, gradient in zip(gradients, found, strict=True):
            sum_ += part.size / total * gradient.numpy()
        for sum_, variable in zip(after, moved, strict=True):
            sum_ += part.size / total * variable.numpy()
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(rate * gradient)
    for variable, value in zip(moved, after, strict=True):
        variable.assign(value)


def assert_close(got: Named, wanted: Named) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
