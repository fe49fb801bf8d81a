"""Wide and deep regression: a linear model of the columns plus a network.

edl train --model-zoo model_zoo --model-def regressor.wide_and_deep.MagicalWAD ...
"""

from collections.abc import Sequence

import tensorflow as tf
from explanations import MARK
from table_networks import WideAndDeepNetwork
from table_training import callbacks

from . import DNN, label_scale


class MagicalWAD(tf.keras.Model):
    """The sum of a linear model, which memorizes, and a deep model, which generalizes.

    Args:
        hidden_units: width of each hidden layer of the deep part.
        word_buckets: number of hash buckets for words, without a schema.
        schema: the content of ``schema.json``, for statistics of the columns.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
        linear_feature_columns, dnn_feature_columns: the same for the linear model and for the
            network: ``COLUMN … FOR linear_feature_columns``.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        word_buckets: int = 1024,
        schema=None,
        label=None,
        columns=None,
        linear_feature_columns=None,
        dnn_feature_columns=None,
    ):
        super().__init__(name="wide_and_deep_regressor")
        self._mean, self._deviation = label_scale(schema, label)
        given = {"word_buckets": word_buckets, "schema": schema, "label": label, "columns": columns}
        self._network = WideAndDeepNetwork(
            1, hidden_units, given, linear_feature_columns, dnn_feature_columns
        )

    def call(self, inputs: dict, training=False):
        outputs = self._deviation * self._network(inputs)
        return outputs if MARK in inputs else self._mean + outputs

    default_input = staticmethod(DNN.default_input)
    default_loss = staticmethod(DNN.default_loss)
    default_metrics = staticmethod(DNN.default_metrics)
    default_optimizer = staticmethod(DNN.default_optimizer)
