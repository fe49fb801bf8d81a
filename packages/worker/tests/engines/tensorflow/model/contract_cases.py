"""A correct model file, and the errors of one that is not."""

from __future__ import annotations

from typing import Any

import pytest
from example_data import float_images
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError
from edl_worker.model_file.errors import ContractErrors

GOOD = {
    "model": """
model = tf.keras.Sequential(
    [tf.keras.Input((28, 28)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
""",
    "dataset_fn": """
def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "image": tf.io.FixedLenFeature([28, 28], tf.float32),
            "label": tf.io.FixedLenFeature([1], tf.int64)})
        return r["image"], r["label"]
    return dataset.map(parse)
""",
    "loss": """
def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(labels, [-1]), logits=predictions))
""",
    "optimizer": """
def optimizer():
    return tf.keras.optimizers.SGD(0.01)
""",
    "eval_metrics_fn": """
def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
""",
}


def write(zoo: ZooFolder, **parts: str) -> None:
    """Write a correct model file with some definitions replaced, or left out if empty."""
    zoo.write("mine.py", "\n".join({**GOOD, **parts}.values()))


def errors(zoo: ZooFolder, **options: Any) -> tuple[EdlError, ...]:
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine", **options)
    return caught.value.errors


def build_errors(zoo: ZooFolder, **options: str) -> tuple[EdlError, ...]:
    """Return the errors that the dry run on the first minibatch finds."""
    model_file = zoo.load("mine", **options)
    first = batches(model_file, float_images(8))[0]
    with pytest.raises(ContractErrors) as caught:
        model_file.build(first)
    return caught.value.errors


def only(found: tuple[EdlError, ...]) -> EdlError:
    (error,) = found
    assert error.remedy
    return error
