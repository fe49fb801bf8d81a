"""Regression on rows of a table with numbers and words.

    edl train --model-zoo model_zoo --model-def regressor.DNN \\
        --input-fn sqlflow.elasticdl_input_function \\
        --params "hidden_units=[10, 100, 20, 5], learning_rate=0.01" ...

Records: tf.Example with one feature per column; see ``sqlflow``.
"""

from collections.abc import Sequence

import tensorflow as tf
from columns import Columns
from explanations import predict_or_explain
from sqlflow import elasticdl_input_function
from table_schema import label_column
from table_training import callbacks, choose_decay


class DNN(tf.keras.Model):
    """Fully connected layers over all columns.

    Args:
        hidden_units: width of each hidden layer.
        word_buckets: number of hash buckets for words, without a schema.
        schema: the content of ``schema.json``, for statistics of the columns. The network then
            predicts how many deviations a label is from the labels' mean.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (128, 64),
        word_buckets: int = 1024,
        schema=None,
        label=None,
        columns=None,
    ):
        super().__init__(name="dnn_regressor")
        # A linear model takes numbers as they are.
        self._columns = Columns(
            word_buckets, schema, label, columns, joined=False, bounded=bool(hidden_units)
        )
        self._mean, self._deviation = label_scale(schema, label)
        self._hidden = [tf.keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._output = tf.keras.layers.Dense(1)

    def call(self, inputs: dict, training=False):
        return predict_or_explain(
            inputs, self._columns(inputs), lambda: self._columns.shares, self._predict
        )

    def _predict(self, parts):
        x = tf.concat(parts, axis=1)
        for layer in self._hidden:
            x = layer(x)
        return self._mean + self._deviation * self._output(x)

    # --input-fn, --loss, --optimizer and --eval-metrics-fn replace these defaults.

    @staticmethod
    def default_input(records, mode, label=None, schema=None):
        return elasticdl_input_function(records, mode, label, schema)

    @staticmethod
    def default_loss(labels, predictions):
        return tf.square(tf.cast(labels, tf.float32) - predictions)

    @staticmethod
    def default_optimizer(
        learning_rate: float = 0.003,
        weight_decay: float | None = None,
        schema=None,
        label=None,
        columns=None,
    ):
        if weight_decay is None:
            weight_decay = choose_decay(schema, label, columns)
        return tf.keras.optimizers.AdamW(learning_rate, weight_decay=weight_decay)

    @staticmethod
    def default_metrics():
        return {
            "mean_absolute_error": tf.keras.metrics.MeanAbsoluteError(),
            "root_mean_squared_error": tf.keras.metrics.RootMeanSquaredError(),
        }


def label_scale(schema, label=None):
    """Mean and deviation of the labels; 0 and 1 without a schema.

    Raises:
        ValueError: the label is a text.
    """
    found = label_column(schema, label)
    if found is None:
        return 0.0, 1.0
    if found["feature"] == "bytes":
        raise ValueError(f"the label {found['name']} is a text, and regression needs a number")
    return found["mean"], found["deviation"] or 1.0
