"""Embedding layers: what they compute, alone and on rows that a plane serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from served_models import DIM, Array, File, build_served, by_id, ids_of, row_of, rows_for, step_of

from edl_proto.errors import EdlError
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow import weights
from edl_worker.engines.tensorflow.embedding.initial_rows import row_initializer
from edl_worker.engines.tensorflow.embedding.layer import Embedding
from edl_worker.engines.tensorflow.embedding.lookup_stages import LayerPurpose, layers_for
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.trained_model import weight_files
from elasticdl import layers

# --- alone ---------------------------------------------------------------------------------


def combine(rows: Array, weights: Array, combiner: str) -> Array:
    if not len(rows):
        return np.zeros(DIM, np.float32)
    by = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt(np.square(weights).sum())}[combiner]
    return (rows * weights[:, None]).sum(0) / by


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_combiners_on_ragged_sparse_and_dense_ids(combiner: str, weighted: bool) -> None:
    layer = Embedding(DIM, combiner=combiner, local_rows=64)
    examples = [[5, -7, 5], [1 << 60], []]
    weights = [[0.5, 2.0, 1.0], [3.0], []]
    ids = tf.ragged.constant(examples, tf.int64)
    given = tf.ragged.constant(weights, tf.float32)
    flat = {i: layer(tf.constant([[i]], tf.int64)).numpy()[0] for i in (5, -7, 1 << 60)}
    plain = Embedding(DIM, local_rows=64)
    plain.build()
    plain.set_weights(layer.get_weights())
    rows = {i: plain(tf.constant([i], tf.int64)).numpy()[0] for i in flat}
    expected = np.array(
        [
            combine(
                np.array([rows[i] for i in example]).reshape(-1, DIM),
                np.array(w if weighted else [1.0] * len(w)),
                combiner,
            )
            for example, w in zip(examples, weights, strict=True)
        ]
    )
    extra = {"weights": given} if weighted else {}
    np.testing.assert_allclose(layer(ids, **extra), expected, rtol=1e-5, atol=1e-6)
    sparse_extra = {"weights": given.to_sparse()} if weighted else {}
    np.testing.assert_allclose(
        layer(ids.to_sparse(), **sparse_extra), expected, rtol=1e-5, atol=1e-6
    )
    dense_extra = {"weights": given[:1].to_tensor()} if weighted else {}
    np.testing.assert_allclose(
        layer(ids[:1].to_tensor(), **dense_extra), expected[:1], rtol=1e-5, atol=1e-6
    )


def test_ragged_ids_without_a_combiner_give_ragged_rows() -> None:
    layer = Embedding(DIM)
    rows = layer(tf.ragged.constant([[1, 2], [], [3]], tf.int64))
    assert rows.shape.as_list() == [3, None, DIM]
    assert rows.row_lengths().numpy().tolist() == [2, 0, 1]


def test_id_0_is_masked_and_left_out_by_combiners_if_it_stands_for_nothing() -> None:
    ids = np.array([[3, 0, 4]])
    layer = Embedding(DIM, mask_zero=True)
    assert layer.compute_mask(ids).numpy().tolist() == [[True, False, True]]
    mean = Embedding(DIM, mask_zero=True, combiner="mean", embeddings_initializer="ones")
    np.testing.assert_allclose(mean(ids), np.ones((1, DIM)))
    assert mean.compute_mask(ids) is None


def test_it_is_the_layer_that_model_files_import() -> None:
    assert layers.Embedding is Embedding
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        layers.Nothing  # noqa: B018  (reading it raises)


def test_in_plain_keras_it_learns_by_fit() -> None:
    """Which ids come is not known beforehand; no id is too large."""
    ids = np.random.default_rng(1).integers(-(2**62), 2**62, 20)
    x, y = np.repeat(ids, 8)[:, None], np.repeat(np.arange(20) % 2, 8)[:, None]
    inputs = keras.Input((1,), dtype="int64")
    flat = keras.layers.Flatten()(Embedding(8)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(flat))
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    model.fit(x, y, epochs=12, verbose=0)
    assert model.evaluate(x, y, verbose=0)[1] == 1.0


@pytest.mark.parametrize(
    "wrong",
    [{"combiner": "max"}, {"output_dim": 0}, {"min_count": 0}, {"max_age": -1}, {"min_count": 256}],
)
def test_senseless_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Embedding(**{"output_dim": 2, **wrong})


def test_an_initializer_that_cannot_make_single_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="Orthogonal"):
        Embedding(4, embeddings_initializer="orthogonal")


@pytest.mark.parametrize(
    "name", ["glorot_uniform", "glorot_normal", "he_normal", "lecun_uniform", "random_normal"]
)
def test_initializers_spread_as_keras_does(name: str) -> None:
    initializer = keras.initializers.get(name)
    theirs = initializer((2000, 50)).numpy()
    layer = Embedding(50, embeddings_initializer=name, input_dim=2000)
    assert layer.initial == row_initializer(initializer, 50, 2000)
    with layers_for(LayerPurpose.TRAINING):
        mine = layer(np.arange(2000)).numpy()
    assert mine.std() == pytest.approx(theirs.std(), rel=0.02)
    assert np.abs(mine).max() <= np.abs(theirs).max() * 1.3


# --- with rows that a plane serves ----------------------------------------------------------


def functional() -> Any:
    inputs = keras.Input((4,), dtype="int64")
    rows = keras.layers.Flatten()(Embedding(DIM, name="rows")(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.0)(rows)))


class Subclassed(keras.Model):
    """Two lookups in one table, one in another, with code in between."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Embedding(DIM, name="shared", combiner="sum")
        self.other = Embedding(DIM, name="other", mask_zero=True)
        self.out = keras.layers.Dense(1)
        self.norm = keras.layers.BatchNormalization()

    def call(self, features: Any, training: bool = False) -> Any:
        left = self.shared(features["left"])
        right = self.shared(features["left"] * 2 - 1)
        middle = tf.reduce_sum(self.other(tf.strings.to_hash_bucket_fast(features["word"], 50)), 1)
        return self.out(self.norm(left + right * middle, training=training))


def test_a_step_asks_for_each_id_once_and_merges_its_gradients() -> None:
    ids = tf.constant([[7, 7, -1, 1 << 62], [7, 0, 0, -1]], tf.int64)
    labels = tf.constant([[1.0], [2.0]])
    file, tables = build_served(functional, ids)
    step, wanted = step_of(file, tables, ids, labels, 2)
    assert sorted(ids_of(wanted).tolist()) == [-1, 0, 7, 1 << 62]

    unique = np.unique(ids)
    weights = tf.Variable([row_of(i) for i in unique.tolist()])
    with tf.GradientTape() as tape:
        rows = tf.gather(weights, np.searchsorted(unique, ids))
        hidden = tf.reshape(rows, [2, -1])
        loss = tf.reduce_mean(tf.square(file.model.layers[-1](hidden) - labels))
    expected = tf.convert_to_tensor(tape.gradient(loss, weights)).numpy()
    assert step.loss == pytest.approx(float(loss), rel=1e-5)
    found = by_id(step, wanted)
    for id_, gradient in zip(unique.tolist(), expected, strict=True):
        np.testing.assert_allclose(found[id_], gradient, rtol=1e-5, atol=1e-6)


def test_a_subclassed_model_may_look_up_where_it_likes() -> None:
    words = tf.constant([["a", "b"], ["b", "c"], ["d", "d"]])
    features = {"left": tf.constant([[1, 2], [3, 1], [1, 1]], tf.int64), "word": words}
    file, tables = build_served(Subclassed, features)
    moving = file.model.norm.moving_mean.numpy()
    step, wanted = step_of(file, tables, features, tf.zeros((3, 1)), 3)
    assert [table.name for table in tables.tables] == ["shared", "other"]
    assert sorted(ids_of(wanted).tolist()) == [1, 2, 3, 5]
    expected = set(tf.strings.to_hash_bucket_fast(words, 50).numpy().ravel().tolist())
    assert set(ids_of(wanted, 1).tolist()) == expected
    assert all(np.abs(g).sum() > 0 for g in by_id(step, wanted).values())
    # Finding out the ids runs nothing else: statistics stay as they were.
    np.testing.assert_array_equal(file.model.norm.moving_mean.numpy(), moving)


def test_one_trace_serves_minibatches_of_any_size() -> None:
    file, tables = build_served(functional, tf.zeros((2, 4), tf.int64))
    trainer = GradientStep(file, WireValues(Arena(file.model, tables)), tables)
    for size in (8, 3, 8, 1):
        batch = Batch(tf.constant(np.arange(4 * size).reshape(size, 4)), tf.zeros((size, 1)), size)
        wanted = tables.find_rows(batch, training=True)
        assert ids_of(wanted).size == 4 * size
        trainer.compute(batch, wanted, rows_for(wanted))
    assert trainer.traces == 1


class InALoop(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.rows = Embedding(DIM)

    def call(self, ids: Any) -> Any:
        return tf.map_fn(self.rows, ids, fn_output_signature=tf.float32)


class FromRows(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Embedding(DIM), Embedding(DIM)

    def call(self, ids: Any) -> Any:
        return self.second(tf.argmax(self.first(ids), -1))


@pytest.mark.parametrize(("model", "problem"), [(InALoop, "loop"), (FromRows, "rows of another")])
def test_ids_that_cannot_be_known_before_are_refused(model: Any, problem: str) -> None:
    ids = tf.constant([1, 2], tf.int64)
    _, tables = build_served(model, ids)
    with pytest.raises(EdlError, match=problem):
        tables.find_rows(Batch(ids, tf.zeros(2), 2), training=True)


# --- the trained model ---------------------------------------------------------------------


def trained_rows(number: int) -> tuple[Array, Array]:
    ids = np.array([9, -2, 4])
    return ids, np.array([row_of(i, number) for i in ids.tolist()])


def test_a_trained_model_answers_alone_wherever_it_is_loaded(tmp_path: Path) -> None:
    ids = tf.constant([[9, -2, 4, 1000], [4, 4, -2, 9]], tf.int64)
    file, tables = build_served(functional, ids)
    unseen = file.call(tf.constant([[1000] * 4], tf.int64), training=False)
    with tables.stored_rows(trained_rows):
        expected = file.model(ids).numpy()
        unseen_held = file.call(tf.constant([[1000] * 4], tf.int64), training=False)
        weight_files.save(weights.of_model(file.model), tmp_path / "v.safetensors")
        file.model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(unseen, unseen_held, rtol=1e-6)
    assert len(file.model.weights) == 2  # of the dense layer: rows are the job's again
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(ids), expected, rtol=1e-6)
    with layers_for(LayerPurpose.ANSWERING):
        again = functional()
    weights.assign(again, weight_files.read(tmp_path / "v.safetensors"))
    np.testing.assert_allclose(again(ids), expected, rtol=1e-6)


def test_a_job_may_begin_with_trained_rows(tmp_path: Path) -> None:
    ids = tf.constant([[9, -2, 4, 1000]], tf.int64)
    file, tables = build_served(functional, ids)
    with tables.stored_rows(trained_rows):
        weight_files.save(weights.of_model(file.model), tmp_path / "v.safetensors")
    with layers_for(LayerPurpose.TRAINING):
        again = File(functional())
        weights.assign(again.model, weight_files.read(tmp_path / "v.safetensors"))
    ((number, begin_ids, begin_rows),) = EmbeddingTables(again, 5, 0).initial_rows()
    assert (number, sorted(begin_ids.tolist())) == (0, [-2, 4, 9])
    for id_, row in zip(begin_ids.tolist(), begin_rows, strict=True):
        np.testing.assert_array_equal(row, row_of(id_))
