"""Points in the plane and the class they belong to: small, with every kind of variable."""

import os
from pathlib import Path

import tensorflow as tf

from elasticdl.python.common.constants import Mode

NAMES = [path.read_text() for path in Path(__file__).parent.glob("*.names")]

inputs = tf.keras.Input(shape=(4,), name="x")
hidden = tf.keras.layers.Dense(8, activation="relu")(inputs)
hidden = tf.keras.layers.BatchNormalization(momentum=0.5)(hidden)
outputs = tf.keras.layers.Dense(3)(hidden)
model = tf.keras.Model(inputs, outputs, name="points")


def dataset_fn(dataset, mode):
    def parse(record):
        features = {"x": tf.io.FixedLenFeature([4], tf.float32)}
        if mode != Mode.PREDICTION:
            features["label"] = tf.io.FixedLenFeature([], tf.int64)
        example = tf.io.parse_single_example(record, features)
        if mode == Mode.PREDICTION:
            return {"x": example["x"]}
        return {"x": example["x"]}, example["label"]

    dataset = dataset.map(parse)
    return dataset.shuffle(64) if mode == Mode.TRAINING else dataset


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)
    )


def optimizer():
    return tf.keras.optimizers.SGD(0.1)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}


class PredictionOutputsProcessor:
    """Notes worker and number of predictions, in a file that a test names."""

    def process(self, predictions, worker_id):
        if "EDL_TEST_PREDICTIONS" in os.environ:
            with open(os.environ["EDL_TEST_PREDICTIONS"], "a") as file:
                file.write(f"{worker_id} {len(predictions.numpy())}\n")
