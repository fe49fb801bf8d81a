"""Networks over the columns of a table; regressors and classifiers add their outputs."""

import tensorflow as tf
from columns import Columns
from explanations import predict_or_explain


class WideAndDeepNetwork(tf.keras.layers.Layer):
    """The sum of a linear model and a network (Cheng et al., 2016).

    Args:
        outputs: how many numbers it gives for each row.
        hidden_units: width of each hidden layer of the network.
        columns: arguments of ``Columns``.
        wide, deep: terms of the linear model and of the network; by default those of ``columns``.
    """

    def __init__(self, outputs, hidden_units, columns, wide=None, deep=None, **kwargs):
        super().__init__(**kwargs)
        self._deep_columns = Columns(**columns | ({"columns": deep} if deep else {}), joined=False)
        self._wide_columns = Columns(**columns | {"columns": wide}, joined=False) if wide else None
        self._wide = tf.keras.layers.Dense(outputs, name="wide")
        self._hidden = [tf.keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._output = tf.keras.layers.Dense(outputs, name="deep", use_bias=False)

    def call(self, inputs):
        deep = self._deep_columns(inputs)
        wide = self._wide_columns(inputs) if self._wide_columns else []

        def head(parts):
            x = tf.concat(parts[: len(deep)], axis=1)
            linear = self._wide(tf.concat(parts[len(deep) :], axis=1) if wide else x)
            for layer in self._hidden:
                x = layer(x)
            return linear + self._output(x)

        def shares():
            return self._deep_columns.shares + (self._wide_columns.shares if wide else [])

        return predict_or_explain(inputs, [*deep, *wide], shares, head)


class DeepFMNetwork(tf.keras.layers.Layer):
    """A linear model, products of all pairs of columns, and a network (Guo et al., 2017).

    Each column becomes a vector; pairs are products of these vectors, which the network has, too.

    Args:
        outputs: how many numbers it gives for each row.
        hidden_units: width of each hidden layer of the network.
        columns: arguments of ``Columns``, the schema among them.
        dim: length of a column's vector.
    """

    def __init__(self, outputs, hidden_units, columns, dim, **kwargs):
        super().__init__(**kwargs)
        self._columns = Columns(**columns, joined=False)
        self._linear = tf.keras.layers.Dense(outputs, name="linear")
        # The products of random vectors are noise, which would take many updates to unlearn.
        self._pairs = tf.keras.layers.Dense(
            outputs, name="pairs", use_bias=False, kernel_initializer="zeros"
        )
        self._hidden = [tf.keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._output = tf.keras.layers.Dense(outputs, name="deep", use_bias=False)
        self._vectors = [
            tf.keras.layers.Dense(dim, use_bias=False, name=f"vector_{number}")
            for number in range(self._columns.parts)
        ]

    def call(self, inputs):
        return predict_or_explain(
            inputs, self._columns(inputs), lambda: self._columns.shares, self._predict
        )

    def _predict(self, parts):
        vectors = [layer(part) for layer, part in zip(self._vectors, parts, strict=True)]
        total = tf.add_n(vectors)
        squares = tf.add_n([tf.square(vector) for vector in vectors])
        x = tf.concat(vectors, axis=1)
        for layer in self._hidden:
            x = layer(x)
        linear = self._linear(tf.concat(parts, axis=1))
        return linear + self._pairs(0.5 * (tf.square(total) - squares)) + self._output(x)
