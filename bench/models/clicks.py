"""A network over 13 numbers and 26 ids, dim 16, 256-128-1: the model file of the benchmark.

``network`` builds it from any embedding layer, so that the peers train the same one.
"""

import keras
import tensorflow as tf

from elasticdl.layers import Embedding
from elasticdl.python.common.constants import Mode

NUMBERS, FIELDS, DIM, HIDDEN = 13, 26, 16, (256, 128)
LEARNING_RATE = 0.01


def network(embedding):
    numbers = keras.Input((NUMBERS,), name="numbers")
    ids = keras.Input((FIELDS,), dtype="int64", name="ids")
    x = keras.layers.Concatenate()([keras.layers.Flatten()(embedding(ids)), numbers])
    for units in HIDDEN:
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model({"numbers": numbers, "ids": ids}, keras.layers.Dense(1)(x))


def model():
    return network(Embedding(DIM))


def parse(records):
    """Return features and labels of a batch of records."""
    description = {
        "numbers": tf.io.FixedLenFeature([NUMBERS], tf.float32),
        "ids": tf.io.FixedLenFeature([FIELDS], tf.int64),
        "click": tf.io.FixedLenFeature([1], tf.int64),
    }
    example = tf.io.parse_example(records, description)
    features = {
        "numbers": tf.math.log1p(example["numbers"]),
        "ids": example["ids"] * 64 + tf.range(FIELDS, dtype=tf.int64),
    }
    return features, tf.cast(example["click"], tf.float32)


def dataset_fn(dataset, mode):
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(4096)
    return dataset.batch(512).map(parse)


def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions, from_logits=True)


def optimizer():
    return keras.optimizers.SGD(LEARNING_RATE)
