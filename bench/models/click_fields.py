"""The network of ``clicks``, as most would write it: a Keras Embedding for each of the 26 fields.

Records are parsed one by one, too.
"""

import keras
import tensorflow as tf

from elasticdl.python.common.constants import Mode

NUMBERS, FIELDS, DIM, HIDDEN, IDS = 13, 26, 16, (256, 128), 100_000
LEARNING_RATE = 0.01


def model():
    numbers = keras.Input((NUMBERS,), name="numbers")
    ids = keras.Input((FIELDS,), dtype="int64", name="ids")
    rows = [keras.layers.Embedding(IDS, DIM)(ids[:, field]) for field in range(FIELDS)]
    x = keras.layers.Concatenate()([*rows, numbers])
    for units in HIDDEN:
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model({"numbers": numbers, "ids": ids}, keras.layers.Dense(1)(x))


def dataset_fn(dataset, mode):
    description = {
        "numbers": tf.io.FixedLenFeature([NUMBERS], tf.float32),
        "ids": tf.io.FixedLenFeature([FIELDS], tf.int64),
        "click": tf.io.FixedLenFeature([1], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, description)
        features = {
            "numbers": tf.math.log1p(example["numbers"]),
            "ids": example["ids"] % IDS,
        }
        return features, tf.cast(example["click"], tf.float32)

    dataset = dataset.map(parse)
    return dataset.shuffle(4096) if mode == Mode.TRAINING else dataset


def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions, from_logits=True)


def optimizer():
    return keras.optimizers.SGD(LEARNING_RATE)
