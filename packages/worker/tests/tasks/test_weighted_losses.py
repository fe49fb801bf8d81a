"""Several losses, weights of examples and of classes, trained by a worker as by Keras alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from conftest import RECORDS, Master, Start, training

import recordio
import recordio.example
from edl_proto.v1 import job_pb2
from edl_worker.engines.tensorflow import weights

SIZE = 8
USED = RECORDS // SIZE * SIZE
"""Records of whole minibatches; Keras would weigh the records of a short one differently."""

MODEL = """
import tensorflow as tf

inputs = tf.keras.Input((4,), name="x")
kind = tf.keras.layers.Dense(3, activation="softmax", name="kind")(inputs)
size = tf.keras.layers.Dense(1, name="size")(inputs)
optimizer = tf.keras.optimizers.SGD(0.1)

def parsed(record):
    found = tf.io.parse_single_example(record, {
        "x": tf.io.FixedLenFeature([4], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)})
    return found["x"], found["label"]
"""
LIST_AND_SAMPLES = """
model = tf.keras.Model(inputs, [kind, size])
loss = ["sparse_categorical_crossentropy", "mse"]
loss_weights = [0.5, 2.0]

def dataset_fn(dataset, mode):
    def parse(record):
        x, label = parsed(record)
        return {"x": x}, (label, x[3:]), tf.abs(x[0])
    return dataset.map(parse)
"""
CLASSES = """
model = tf.keras.Model(inputs, kind)
loss = "sparse_categorical_crossentropy"
class_weight = {0: 1.0, 1: 5.0, 2: 0.2}

def dataset_fn(dataset, mode):
    def parse(record):
        x, label = parsed(record)
        return {"x": x}, label
    return dataset.map(parse)
"""
ENTROPY = "sparse_categorical_crossentropy"


class Alone:
    """The results of Keras alone for the same model, values and records."""

    def __init__(self, job: job_pb2.JobSpec, points: Path) -> None:
        self._job = job
        examples = [
            recordio.example.decode(r) for r in recordio.open_source(str(points)).read(0, USED)
        ]
        self.x = np.stack([example["x"] for example in examples])
        self.label = np.concatenate([example["label"] for example in examples])

    def fit(self, labels: Any, compiled: dict[str, Any], **fitted: Any) -> reference.Named:
        file = reference.load_model(self._job)
        model: Any = file.model
        model.compile(optimizer=file.optimizer, run_eagerly=True, **compiled)
        model.fit(self.x, labels, batch_size=SIZE, shuffle=False, verbose=0, **fitted)
        return weights.of_model(model)


def differ(one: reference.Named, other: reference.Named) -> bool:
    """Whether the values are too far apart for ``reference.assert_close``, not only just."""
    return any(np.abs(one[name] - other[name]).max() > 0.01 for name in one)


@pytest.fixture
def job(job: job_pb2.JobSpec, tmp_path: Path) -> job_pb2.JobSpec:
    job.model.model_zoo, job.model.model_def = str(tmp_path), "mine"
    return job


Train = Callable[[str], list[reference.Named]]


@pytest.fixture
def train_twice(
    job: job_pb2.JobSpec, points: Path, tmp_path: Path, start_master: Master, start_worker: Start
) -> Train:
    def train(source: str) -> list[reference.Named]:
        """Return the values by a worker that pushes gradients, and by one of local steps."""
        (tmp_path / "mine.py").write_text(MODEL + source)
        found = []
        for local_steps in (1, 3):
            job.training.local_steps = local_steps
            master = start_master(job, [[training(points, 0, USED)]], rate=0.1)
            assert start_worker(master).wait() == 0, master.received.failed
            found.append(master.by_name())
        return found

    return train


def test_a_list_of_losses_and_the_weights_of_examples(
    job: job_pb2.JobSpec, points: Path, train_twice: Train
) -> None:
    found = train_twice(LIST_AND_SAMPLES)

    alone = Alone(job, points)
    labels = [alone.label, alone.x[:, 3:]]
    both = {"loss": [ENTROPY, "mse"], "loss_weights": [0.5, 2.0]}
    weights = np.abs(alone.x[:, 0])
    expected = alone.fit(labels, both, sample_weight=weights)
    for values in found:
        reference.assert_close(values, expected)
    # Each of them counts.
    first_only = {**both, "loss_weights": [0.5, 0.0]}
    assert differ(expected, alone.fit(labels, first_only, sample_weight=weights))
    assert differ(expected, alone.fit(labels, {"loss": both["loss"]}, sample_weight=weights))
    assert differ(expected, alone.fit(labels, both))


def test_the_weights_of_classes(job: job_pb2.JobSpec, points: Path, train_twice: Train) -> None:
    found = train_twice(CLASSES)

    alone, compiled = Alone(job, points), {"loss": ENTROPY}
    expected = alone.fit(alone.label, compiled, class_weight={0: 1.0, 1: 5.0, 2: 0.2})
    for values in found:
        reference.assert_close(values, expected)
    assert differ(expected, alone.fit(alone.label, compiled))
