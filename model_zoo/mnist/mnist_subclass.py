"""MNIST with a subclassed model; another module has the other definitions.

Records: tf.Example with ``image`` (28×28 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

# Definitions may come from other modules; only their names in this module matter.
from .mnist_functional_api import dataset_fn, eval_metrics_fn, loss, optimizer


class MnistModel(tf.keras.Model):
    def __init__(self, filters=32, dropout=0.25):
        super().__init__(name="mnist_model")
        self._reshape = tf.keras.layers.Reshape((28, 28, 1))
        self._conv1 = tf.keras.layers.Conv2D(filters, kernel_size=(3, 3), activation="relu")
        self._conv2 = tf.keras.layers.Conv2D(2 * filters, kernel_size=(3, 3), activation="relu")
        self._batch_norm = tf.keras.layers.BatchNormalization(momentum=0.9)
        self._maxpooling = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))
        self._dropout = tf.keras.layers.Dropout(dropout)
        self._flatten = tf.keras.layers.Flatten()
        self._dense = tf.keras.layers.Dense(10)

    def call(self, inputs, training=False):
        x = self._reshape(inputs)
        x = self._conv1(x)
        x = self._conv2(x)
        x = self._batch_norm(x, training=training)
        x = self._maxpooling(x)
        x = self._dropout(x, training=training)
        x = self._flatten(x)
        return self._dense(x)
