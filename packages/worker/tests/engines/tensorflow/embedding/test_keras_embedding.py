"""Keras's own Embedding layers that are served as tables."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from served_models import DIM, File, build_served, by_id, ids_of, step_of

from edl_proto.errors import EdlError
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues


def plain() -> Any:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,), dtype="int32")
    rows = keras.layers.Flatten()(keras.layers.Embedding(50, DIM, name="plain")(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(rows))


def test_a_large_keras_embedding_gives_the_same_gradient_as_a_table() -> None:
    ids, labels = tf.constant([[1, 1, -1, 30], [2, 0, 1, 49]]), tf.constant([[1.0], [2.0]])
    file = File(plain())
    dense = GradientStep(file, WireValues(Arena(file.model))).compute(Batch(ids, labels, 2))
    gradient = np.frombuffer(dense.gradient[0], np.float32)[: 50 * DIM].reshape(50, DIM)

    file, tables = build_served(plain, ids, threshold=150)
    ((number, begin_ids, begin_rows),) = tables.initial_rows()
    assert number == 0
    np.testing.assert_array_equal(begin_ids, np.arange(50))
    trainer = GradientStep(file, WireValues(Arena(file.model, tables)), tables)
    wanted = tables.find_rows(Batch(ids, labels, 2), training=True)
    assert sorted(ids_of(wanted).tolist()) == [0, 1, 2, 30, 49]
    step = trainer.compute(Batch(ids, labels, 2), wanted, begin_rows[ids_of(wanted)].reshape(-1))
    assert step.loss == pytest.approx(dense.loss, rel=1e-6)
    for id_, row in by_id(step, wanted).items():
        np.testing.assert_allclose(row, gradient[id_], rtol=1e-5, atol=1e-7)
    # Only the dense layer travels as such.
    assert sum(part.nbytes for part in step.gradient) == 4 * (4 * DIM + 1)


def test_ids_that_a_keras_embedding_has_no_rows_for_are_refused() -> None:
    ids = tf.constant([[1, 1, 1, 1]])
    _, tables = build_served(plain, ids, threshold=1)
    with pytest.raises(ValueError, match=r"id 50 is not in \[0, 50\)"):
        tables.find_rows(Batch(ids * 50, tf.zeros((1, 1)), 1), training=True)


def test_small_regularized_frozen_and_tied_embeddings_stay_as_they_are() -> None:
    ids = tf.constant([[1, 1, 1, 1]])
    assert build_served(plain, ids, threshold=151)[1].tables == ()
    assert build_served(plain, ids, threshold=0)[1].tables == ()

    def special() -> Any:
        inputs = keras.Input((4,), dtype="int32")
        fixed = keras.layers.Embedding(50, DIM, trainable=False)
        regular = keras.layers.Embedding(50, DIM, embeddings_regularizer="l2")
        both = keras.layers.Flatten()(fixed(inputs) + regular(inputs))
        return keras.Model(inputs, keras.layers.Dense(1)(both))

    assert build_served(special, ids, threshold=1)[1].tables == ()


class Tied(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.rows = keras.layers.Embedding(50, DIM)

    def call(self, ids: Any) -> Any:
        return tf.matmul(self.rows(ids), self.rows.embeddings.value, transpose_b=True)


def test_weights_that_are_used_otherwise_than_by_looking_up_are_reported() -> None:
    ids = tf.constant([[1, 1, 1, 1]])
    file, tables = build_served(Tied, ids, threshold=1)
    with pytest.raises(EdlError, match="for more than looking up"):
        step_of(file, tables, ids, tf.zeros((1, 4, 50)), 1)


def of_several_widths() -> Any:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,), dtype="int32")
    wide, narrow = (keras.layers.Embedding(50, width, name=f"w{width}") for width in (5, 2))
    other = keras.layers.Embedding(50, 5, name="other")
    looked_up = [wide(inputs[:, 0]), narrow(inputs[:, 1]), other(inputs), wide(inputs[:, 3])]
    rows = keras.layers.Concatenate()([keras.layers.Flatten()(rows) for rows in looked_up])
    return keras.Model(inputs, keras.layers.Dense(1)(rows))


def test_tables_of_several_widths_give_the_gradients_that_they_give_in_keras() -> None:
    """Tables of equal width are one matrix in a step; each keeps its ids and its gradients."""
    ids, labels = tf.constant([[1, 1, 7, 30], [30, 0, 1, 1]]), tf.constant([[1.0], [2.0]])
    model = of_several_widths()
    tables_of_keras = [layer.embeddings for layer in model.layers if hasattr(layer, "embeddings")]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(labels - model(ids, training=True)))
    expected = {
        variable.path: tf.convert_to_tensor(gradient).numpy()
        for variable, gradient in zip(
            tables_of_keras, tape.gradient(loss, [v.value for v in tables_of_keras]), strict=True
        )
    }

    file, tables = build_served(of_several_widths, ids, threshold=1)
    begin = {number: rows for number, _, rows in tables.initial_rows()}
    trainer = GradientStep(file, WireValues(Arena(file.model, tables)), tables)
    batch = Batch(ids, labels, 2)
    wanted = tables.find_rows(batch, training=True)
    asked = {tables.tables[n].name: sorted(i.tolist()) for n, i in wanted.ids_by_table()}
    assert asked == {
        "w2/embeddings": [0, 1],
        "w5/embeddings": [1, 30],
        "other/embeddings": [0, 1, 7, 30],
    }
    rows = np.concatenate([begin[n][i].reshape(-1) for n, i in wanted.ids_by_table()])
    np.testing.assert_array_equal(tables.initial_rows_of(wanted), rows)
    step = trainer.compute(batch, wanted, rows)
    assert step.loss == pytest.approx(float(loss), rel=1e-6)
    found = np.frombuffer(step.rows, np.float32)
    for number, some in wanted.ids_by_table():
        gradient = expected[tables.tables[number].name]
        mine, found = np.split(found, [gradient[some].size])
        np.testing.assert_allclose(mine.reshape(gradient[some].shape), gradient[some], rtol=1e-5)
    assert not found.size
    assert trainer.traces == 1
