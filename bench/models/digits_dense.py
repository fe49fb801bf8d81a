"""A small model of the digits that learns within seconds, for comparisons over many runs."""

import tensorflow as tf

from elasticdl.python.common.constants import Mode

inputs = tf.keras.Input(shape=(28, 28), name="image")
x = tf.keras.layers.Flatten()(inputs)
x = tf.keras.layers.Dense(64, activation="relu")(x)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(10)(x), name="digits_dense")


def dataset_fn(dataset, mode):
    description = {
        "image": tf.io.FixedLenFeature([28, 28], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, description)
        return {"image": example["image"] / 255.0}, example["label"]

    dataset = dataset.map(parse)
    return dataset.shuffle(1024) if mode == Mode.TRAINING else dataset


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)
    )


def optimizer():
    # With slots and a schedule: both have to survive a master.
    rate = tf.keras.optimizers.schedules.CosineDecay(0.003, 2000)
    return tf.keras.optimizers.Adam(rate)


def eval_metrics_fn():
    return {"accuracy": lambda labels, predictions: tf.equal(tf.argmax(predictions, 1), labels)}
