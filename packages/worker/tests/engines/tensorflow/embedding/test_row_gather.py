"""The quick gradient of lookups is that of ``tf.gather``."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.embedding.row_gather import gather_rows


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (5, 40), (300, 7), (70_000, 90_000), (3, 0)])
def test_rows_and_their_gradients_are_those_of_gather(rows: int, n: int) -> None:
    random = np.random.default_rng(rows + n)
    table = tf.constant(random.normal(size=(rows, 3)).astype(np.float32))
    at = random.integers(0, rows, n, np.int32)
    weight = tf.constant(random.normal(size=(n, 3)).astype(np.float32))
    order = np.argsort(at)
    places = tf.constant(np.concatenate([at, order, at[order]], dtype=np.int32, casting="unsafe"))
    found, gradients = [], []
    for gather in (
        lambda t: gather_rows(t, places),
        lambda t: tf.gather(t, at),
    ):
        with tf.GradientTape() as tape:
            tape.watch(table)
            taken = gather(table)
            loss = tf.reduce_sum(taken * weight)
        found.append(taken.numpy())
        gradients.append(tf.convert_to_tensor(tape.gradient(loss, table)).numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-5)
