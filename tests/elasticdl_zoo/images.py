"""A subclass of layers that were imported by old paths; records that the input function parses."""

import numpy as np
import tensorflow as tf
from tensorflow.python.keras import layers


class CustomModel(tf.keras.Model):
    def __init__(self, channel_last=True):
        super().__init__(name="images")
        self._reshape = layers.Reshape((6, 6, 1))
        self._conv = layers.Conv2D(4, (3, 3), activation="relu", use_bias=False)
        self._norm = layers.BatchNormalization(axis=-1 if channel_last else 1, momentum=0.9)
        self._flat = layers.Flatten()
        self._dense = layers.Dense(2)

    def call(self, inputs, training=False):
        x = self._reshape(inputs["image"])
        x = self._norm(self._conv(x), training=training)
        return self._dense(self._flat(x))


def input_fn(records):
    description = {
        "image": tf.io.FixedLenFeature([6, 6], tf.float32),
        "label": tf.io.FixedLenFeature([1], tf.int64),
    }
    parsed = [tf.io.parse_single_example(r, description) for r in records]
    images = np.array([r["image"].numpy() for r in parsed]).astype(np.float32)
    labels = np.array([r["label"].numpy() for r in parsed]).astype(np.int32)
    return {"image": images}, labels


def loss(output, labels):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(logits=output, labels=labels.flatten())
    )


def optimizer(lr=0.1):
    return tf.train.GradientDescentOptimizer(lr)


def eval_metrics_fn(predictions, labels):
    return {
        "accuracy": tf.reduce_mean(
            tf.cast(tf.equal(tf.argmax(input=predictions, axis=1), labels.flatten()), tf.float32)
        )
    }
