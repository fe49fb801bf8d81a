"""DeepFM regression: a linear model, products of pairs of columns, and a network.

edl train --model-zoo model_zoo --model-def regressor.deepfm.DeepFM ...
"""

from collections.abc import Sequence

import tensorflow as tf
from explanations import MARK
from table_networks import DeepFMNetwork
from table_training import callbacks

from . import DNN, label_scale


class DeepFM(tf.keras.Model):
    """A factorization machine and a network that share the vectors of the columns.

    Args:
        hidden_units: width of each hidden layer of the network.
        schema: the content of ``schema.json``.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
        dim: length of the vector of a column.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        schema=None,
        label=None,
        columns=None,
        dim: int = 8,
    ):
        super().__init__(name="deepfm_regressor")
        self._mean, self._deviation = label_scale(schema, label)
        given = {"schema": schema, "label": label, "columns": columns}
        self._network = DeepFMNetwork(1, hidden_units, given, dim)

    def call(self, inputs: dict, training=False):
        outputs = self._deviation * self._network(inputs)
        return outputs if MARK in inputs else self._mean + outputs

    default_input = staticmethod(DNN.default_input)
    default_loss = staticmethod(DNN.default_loss)
    default_metrics = staticmethod(DNN.default_metrics)
    default_optimizer = staticmethod(DNN.default_optimizer)
