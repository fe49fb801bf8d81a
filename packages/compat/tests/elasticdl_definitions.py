"""Definitions of model files of ElasticDL that several tests use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from example_data import example
from plain_loop import train
from zoo_folder import ZooFolder

from edl_worker.engines.tensorflow.model import ModelFile

TABLE = [f"{a},{a + 1},{int(a > 4)}".encode() for a in range(8)]
COLUMNS = ("first", "second", "label")
IDS = [
    example(ids=np.array([i % 5, 0, 7 * i]), label=np.array([i % 2], np.int64)) for i in range(24)
]
PARSE_IDS = """
def feed(dataset, mode, _):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "ids": tf.io.FixedLenFeature([3], tf.int64),
            "label": tf.io.FixedLenFeature([1], tf.int64)})
        return {"ids": r["ids"]}, tf.cast(r["label"], tf.int32)
    return dataset.map(parse)

def optimizer(lr=0.1):
    return tf.optimizers.SGD(lr)
"""
BINARY_LOSS = """
def loss(labels, predictions):
    logits = tf.reshape(predictions["logits"], [-1])
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
"""


def load_and_train(
    zoo: ZooFolder, source: str, records: Sequence[bytes], **more: object
) -> ModelFile:
    """The model file, after one epoch whose losses are finite."""
    zoo.write("mine.py", source)
    model_file = zoo.load("mine")
    losses = train(model_file, records, size=4, **more)
    assert losses
    assert np.isfinite(losses).all()
    return model_file
