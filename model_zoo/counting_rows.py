"""The counting model with an embedding table: each id's row counts how often it was trained.

    edl train --model-zoo model_zoo --model-def counting_rows ...

Records: tf.Example with ``number`` (int64). An id is a number far from its neighbours and often
negative, so that no array could hold the table.
"""

import numpy as np
import tensorflow as tf

from elasticdl.layers import Embedding
from elasticdl.python.common.constants import Mode

SPREAD = np.int64(-7046029254386353131)  # odd: no two numbers give the same id


def model():
    number = tf.keras.Input(shape=(), dtype="int64", name="number")
    count = Embedding(1, embeddings_initializer="zeros", name="count")(number * SPREAD)
    return tf.keras.Model(number, tf.keras.layers.Reshape(())(count), name="counting_rows")


def dataset_fn(dataset, mode):
    def parse(record):
        example = tf.io.parse_single_example(
            record, {"number": tf.io.FixedLenFeature([], tf.int64)}
        )
        if mode == Mode.PREDICTION:
            return {"number": example["number"]}
        return {"number": example["number"]}, example["number"]

    dataset = dataset.map(parse)
    return dataset.shuffle(buffer_size=1024) if mode == Mode.TRAINING else dataset


def loss(labels, predictions):
    # A sum, so that a row grows by 1 whatever the size of its minibatch.
    return -tf.reduce_sum(predictions)


def optimizer():
    return tf.keras.optimizers.SGD(learning_rate=1.0)


def eval_metrics_fn():
    return {"mean_count": lambda labels, predictions: predictions}
