"""The counting model: checks that every record trains the model exactly once per epoch.

One weight per record, learning rate 1, and a loss whose gradient is -1 for each record of the
batch: after E epochs every weight is exactly E, or a record was lost or repeated.

    edl train --model-zoo model_zoo --model-def counting --params size=1000 ...

Records: tf.Example with ``number`` (int64), from 0 to size - 1.
"""

import tensorflow as tf

from elasticdl.python.common.constants import Mode


def model(size):
    number = tf.keras.Input(shape=(), dtype="int64", name="number")
    count = tf.keras.layers.Embedding(size, 1, embeddings_initializer="zeros", name="count")(number)
    return tf.keras.Model(number, tf.keras.layers.Reshape(())(count), name="counting")


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
    # A sum, so that the weight of a record grows by 1 for any minibatch size.
    return -tf.reduce_sum(predictions)


def optimizer():
    return tf.keras.optimizers.SGD(learning_rate=1.0)


def eval_metrics_fn():
    return {"mean_count": lambda labels, predictions: predictions}
