"""Wide and deep regression: a linear model of the columns plus a network.

edl train --model-zoo model_zoo --model-def regressor.wide_and_deep.MagicalWAD ...
"""

import tensorflow as tf
from columns import Columns

from . import DNN, label_scale


class MagicalWAD(tf.keras.Model):
    """The sum of a linear model, which memorizes, and a deep model, which generalizes.

    Args:
        hidden_units: width of each hidden layer of the deep part.
        word_buckets: number of hash buckets for words, without a schema.
        schema: the content of ``schema.json``, for statistics of the columns.
        label: name of the label; by default that of the schema.
    """

    def __init__(self, hidden_units=(64, 32), word_buckets=1024, schema=None, label=None):
        super().__init__(name="wide_and_deep_regressor")
        self._columns = Columns(word_buckets, schema, label)
        self._mean, self._deviation = label_scale(schema, label)
        self._wide = tf.keras.layers.Dense(1, name="wide")
        self._deep = [tf.keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._output = tf.keras.layers.Dense(1, name="deep", use_bias=False)

    def call(self, inputs: dict, training=False):
        columns = self._columns(inputs)
        x = columns
        for layer in self._deep:
            x = layer(x)
        return self._mean + self._deviation * (self._wide(columns) + self._output(x))

    default_input = staticmethod(DNN.default_input)
    default_loss = staticmethod(DNN.default_loss)
    default_metrics = staticmethod(DNN.default_metrics)

    @staticmethod
    def default_optimizer(learning_rate=0.05):
        return tf.keras.optimizers.Ftrl(learning_rate)
