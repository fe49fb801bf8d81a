"""A trace gets each tensor of a minibatch as the argument that it is."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction


def _minibatch(size: int) -> dict[str, Any]:
    value = tf.range(size, dtype=tf.float32)
    return {
        "b": value,
        "a": (10 + value, {"z": 20 + value, "y": 30 + value}),
        "ragged": tf.RaggedTensor.from_row_lengths(40 + value, tf.ones(size, tf.int64)),
        "sparse": tf.sparse.from_dense(50 + value[:, None]),
    }


def test_nested_ragged_and_sparse_tensors_keep_their_places() -> None:
    function = SizeAgnosticFunction(lambda features, labels: (features, labels))
    for _ in range(2):
        features = _minibatch(4)
        found, none = function(4, features, None)
        assert none is None
        given = tf.nest.flatten(features, expand_composites=True)
        for mine, other in zip(tf.nest.flatten(found, expand_composites=True), given, strict=True):
            tf.debugging.assert_equal(mine, other)
    assert function.traces == 1
