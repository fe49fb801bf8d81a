"""DeepFM and wide-and-deep over ``numbers`` and ``ids``; the outputs are logits."""

import keras
from keras import ops

from elasticdl.layers import Embedding


def _inputs(numbers, fields):
    return (
        keras.Input((numbers,), name="numbers"),
        keras.Input((fields,), dtype="int64", name="ids"),
    )


def _network(x, hidden):
    for units in hidden:
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.layers.Dense(1)(x)


def deepfm(numbers, fields, dim=16, hidden=(256, 128)):
    """DeepFM: a factorization machine and a network that share embeddings (Guo et al., 2017)."""
    given, ids = _inputs(numbers, fields)
    rows = Embedding(dim, name="factors")(ids)
    single = Embedding(1, "zeros", combiner="sum", name="linear")(ids)
    total = ops.sum(rows, axis=1)
    pairs = 0.5 * ops.sum(ops.square(total) - ops.sum(ops.square(rows), axis=1), 1, keepdims=True)
    flat = keras.layers.Concatenate()([keras.layers.Flatten()(rows), given])
    outputs = keras.layers.Add()(
        [single, keras.layers.Dense(1)(given), pairs, _network(flat, hidden)]
    )
    return keras.Model({"numbers": given, "ids": ids}, outputs, name="deepfm")


def wide_and_deep(numbers, fields, dim=16, hidden=(256, 128)):
    """A linear model of ids and of pairs of adjacent ids, and a network (Cheng et al., 2016)."""
    given, ids = _inputs(numbers, fields)
    # A pair of ids gives another id; overflow wraps around.
    crossed = ids[:, :-1] * 0x5851F42D4C957F2D + ids[:, 1:]
    wide = Embedding(1, "zeros", combiner="sum", name="wide")(
        keras.layers.Concatenate()([ids, crossed])
    )
    deep = keras.layers.Flatten()(Embedding(dim, name="deep")(ids))
    network = _network(keras.layers.Concatenate()([deep, given]), hidden)
    outputs = keras.layers.Add()([wide, keras.layers.Dense(1)(given), network])
    return keras.Model({"numbers": given, "ids": ids}, outputs, name="wide_and_deep")


def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions, from_logits=True)


def eval_metrics_fn():
    return {"auc": keras.metrics.AUC(from_logits=True)}
