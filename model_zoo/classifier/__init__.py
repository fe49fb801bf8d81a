"""Classification of rows of a table with numbers and texts.

    edl train --model-zoo model_zoo --model-def classifier.DNN --params "n_classes=3" ...

Records: tf.Example with one feature per column; see ``sqlflow``. The label is a number from 0 on.
"""

from collections.abc import Sequence

import tensorflow as tf
from columns import Columns
from explanations import predict_or_explain
from sqlflow import elasticdl_input_function
from table_schema import number_of_classes
from table_training import callbacks, choose_decay


class DNN(tf.keras.Model):
    """Fully connected layers over all columns; the outputs are a logit for each class.

    Args:
        hidden_units: width of each hidden layer.
        n_classes: number of classes; by default one more than the greatest label of the schema.
        word_buckets: number of hash buckets for words, without a schema.
        schema: the content of ``schema.json``, for statistics of the columns.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default
            all columns.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (128, 64),
        n_classes: int | None = None,
        word_buckets: int = 1024,
        schema=None,
        label=None,
        columns=None,
    ):
        super().__init__(name="dnn_classifier")
        # A linear model takes numbers as they are.
        self._columns = Columns(
            word_buckets, schema, label, columns, joined=False, bounded=bool(hidden_units)
        )
        self._hidden = [tf.keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._output = tf.keras.layers.Dense(n_classes or number_of_classes(schema, label))

    def call(self, inputs: dict, training=False):
        return predict_or_explain(
            inputs, self._columns(inputs), lambda: self._columns.shares, self._predict
        )

    def _predict(self, parts):
        x = tf.concat(parts, axis=1)
        for layer in self._hidden:
            x = layer(x)
        return self._output(x)

    # --input-fn, --loss, --optimizer and --eval-metrics-fn replace these defaults.

    @staticmethod
    def default_input(records, mode, label=None, schema=None):
        return elasticdl_input_function(records, mode, label, schema)

    @staticmethod
    def default_loss(labels, predictions):
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)

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
        return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
