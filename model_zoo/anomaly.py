"""Which rows of a table are unlike the others? No label is needed.

edl train --model-zoo model_zoo --model-def anomaly.Autoencoder ...
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from columns import Columns
from sqlflow import elasticdl_input_function

from elasticdl.python.common.constants import Mode


class Autoencoder(tf.keras.Model):
    """Reproduces rows from few numbers; the output is the mean squared error of each row, (n, 1).

    Rows like those of the training have small errors. Numbers count in deviations from their mean.

    Args:
        hidden_units: width of each layer down to the narrowest; the layers behind mirror them.
        schema: the content of ``schema.json``.
        label: name of a column that is not to be learned from; by default the label of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
    """

    learns_label = False

    def __init__(
        self, hidden_units: Sequence[int] = (32, 8), schema=None, label=None, columns=None
    ):
        super().__init__(name="autoencoder")
        self._columns = Columns(schema=schema, label=label, columns=columns)
        widths = (*hidden_units, *reversed(hidden_units[:-1]))
        # A bounded function cannot reproduce values far beyond those of the training.
        self._hidden = [tf.keras.layers.Dense(units, activation="tanh") for units in widths]
        self._output = tf.keras.layers.Dense(self._columns.width)

    def call(self, inputs: dict, training=False):
        rows = self._columns(inputs)
        x = rows
        for layer in self._hidden:
            x = layer(x)
        # Embedded texts are to be reproduced, and must not all become the same instead.
        difference = self._output(x) - tf.stop_gradient(rows)
        return tf.reduce_mean(tf.square(difference), axis=1, keepdims=True)

    # --input-fn, --loss, --optimizer and --eval-metrics-fn replace these defaults.

    @staticmethod
    def default_input(records, mode, label=None, schema=None):
        features, _ = elasticdl_input_function(records, Mode.PREDICTION, label, schema)
        if mode == Mode.PREDICTION:
            return features, None
        return features, np.zeros((len(records), 1), np.float32)

    @staticmethod
    def default_loss(labels, predictions):
        return predictions

    @staticmethod
    def default_optimizer(learning_rate: float = 0.003):
        return tf.keras.optimizers.Adam(learning_rate)

    @staticmethod
    def default_metrics():
        return {"reconstruction_error": lambda labels, predictions: predictions}
