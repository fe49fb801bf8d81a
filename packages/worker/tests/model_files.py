"""Source code of model files that several tests use, and records for them."""

from __future__ import annotations

import numpy as np
from example_data import example

REST = """
def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "y": tf.io.FixedLenFeature([1], tf.float32)})
        return {"x": r["x"]}, r["y"]
    return dataset.map(parse)

def optimizer(lr=0.1):
    return tf.keras.optimizers.SGD(lr)
"""
MODEL = """
inputs = tf.keras.Input((2,), name="x")
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
"""
LOSS = """
def loss(labels, predictions):
    return tf.square(labels - predictions)
"""


SUBCLASS = """
class Layer(tf.keras.layers.Layer):
    def call(self, inputs):
        return inputs["x"] * 2.0

class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
        self.layer = Layer()
    def call(self, {signature}):
        return {body}
"""


def rows(count: int = 64) -> list[bytes]:
    random = np.random.default_rng(4)
    return [
        example(x=x.astype(np.float32), y=np.array([x[0] - 2 * x[1]], np.float32))
        for x in random.random((count, 2))
    ]
