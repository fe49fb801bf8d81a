"""Wide and deep classification: a linear model of the columns plus a network.

edl train --model-zoo model_zoo --model-def classifier.wide_and_deep.WideAndDeep ...
"""

from collections.abc import Sequence

import tensorflow as tf
from table_networks import WideAndDeepNetwork
from table_training import callbacks

from . import DNN, number_of_classes


class WideAndDeep(tf.keras.Model):
    """The sum of a linear model, which memorizes, and a deep model, which generalizes.

    Args:
        hidden_units: width of each hidden layer of the deep part.
        n_classes: number of classes; by default one more than the greatest label of the schema.
        schema: the content of ``schema.json``.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
        linear_feature_columns, dnn_feature_columns: the same for the linear model and for the
            network: ``COLUMN … FOR linear_feature_columns``.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        n_classes: int | None = None,
        schema=None,
        label=None,
        columns=None,
        linear_feature_columns=None,
        dnn_feature_columns=None,
    ):
        super().__init__(name="wide_and_deep_classifier")
        classes = n_classes or number_of_classes(schema, label)
        given = {"schema": schema, "label": label, "columns": columns}
        self._network = WideAndDeepNetwork(
            classes, hidden_units, given, linear_feature_columns, dnn_feature_columns
        )

    def call(self, inputs: dict, training=False):
        return self._network(inputs)

    default_input = staticmethod(DNN.default_input)
    default_loss = staticmethod(DNN.default_loss)
    default_metrics = staticmethod(DNN.default_metrics)
    default_optimizer = staticmethod(DNN.default_optimizer)
