"""Variables as flat buffers, and the traced step, against Keras and a plain tape."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import StubModelFile, batch_of, mean_square, regression

from edl_proto.errors import EdlError
from edl_worker.core.batch import Batch
from edl_worker.core.step_engine import StepResult
from edl_worker.engines.tensorflow import weights
from edl_worker.engines.tensorflow.optimizers import describe_optimizer
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.training.replica import ReceiveBuffer


def trainer_of(model: keras.Model) -> tuple[GradientStep, Arena]:
    arena = Arena(model)
    return GradientStep(StubModelFile(model, mean_square), WireValues(arena)), arena


def gradient_of(step: StepResult) -> np.ndarray[Any, Any]:
    return np.concatenate([np.frombuffer(part, np.float32) for part in step.gradient])


def test_a_gradient_is_the_tapes_own_flattened_in_wire_order() -> None:
    model = regression(keras.layers.Dense(5, activation="tanh"))
    trainer, arena = trainer_of(model)
    batch = batch_of()
    with tf.GradientTape() as tape:
        loss = mean_square(model(batch.features), batch.labels)
    expected = tape.gradient(loss, [w.variable.value for w in arena.weights])
    step = trainer.compute(batch)
    flat = np.concatenate([g.numpy().ravel() for g in expected])
    np.testing.assert_allclose(gradient_of(step), flat, rtol=1e-5, atol=1e-7)
    assert step.loss == pytest.approx(float(loss), rel=1e-6)
    assert step.state_delta == ()


def test_regularization_is_part_of_loss_and_gradient() -> None:
    plain = regression()
    regular = regression()
    regular.layers[-1].kernel_regularizer = keras.regularizers.L2(0.1)
    regular.layers[-1].kernel.regularizer = keras.regularizers.L2(0.1)
    regular.set_weights(plain.get_weights())
    kernel = plain.layers[-1].kernel.numpy()
    a, b = trainer_of(plain)[0].compute(batch_of()), trainer_of(regular)[0].compute(batch_of())
    assert b.loss - a.loss == pytest.approx(0.1 * np.square(kernel).sum(), rel=1e-4)
    difference = gradient_of(b) - gradient_of(a)
    np.testing.assert_allclose(difference[:3], 0.2 * kernel.ravel(), rtol=1e-4)


def test_embedding_gradients_become_dense() -> None:
    inputs = keras.Input((2,), dtype="int32")
    rows = keras.layers.Embedding(10, 4)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    trainer, arena = trainer_of(model)
    ids = tf.constant([[1, 1], [1, 7]])
    step = trainer.compute(Batch(ids, tf.ones((2, 1)), 2))
    rows_of_gradient = gradient_of(step)[:40].reshape(10, 4)
    touched = np.flatnonzero(np.abs(rows_of_gradient).sum(1))
    assert touched.tolist() == [1, 7]
    assert sum(part.nbytes for part in step.gradient) == arena.nbytes


def test_an_unused_variable_has_a_gradient_of_zeros() -> None:
    class Lazy(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = keras.layers.Dense(1), keras.layers.Dense(1)

        def build(self, shape: Any) -> None:
            self.used.build(shape)
            self.idle.build(shape)
            self.built = True

        def call(self, x: Any, training: bool = False) -> Any:
            return self.used(x)

    model = Lazy()
    model.build((None, 3))
    gradient = gradient_of(trainer_of(model)[0].compute(batch_of()))
    assert np.abs(gradient[:4]).min() > 0
    assert np.abs(gradient[4:]).max() == 0


def test_moving_statistics_travel_as_a_difference_and_leave_no_trace() -> None:
    layer = keras.layers.BatchNormalization(momentum=0.9)
    model = regression(layer)
    trainer, arena = trainer_of(model)
    assert [w.name.rsplit("/", 1)[1] for w in arena.weights if not w.trainable] == [
        "moving_mean",
        "moving_variance",
    ]
    batch = batch_of()
    before = weights.of_model(model)
    first, second = trainer.compute(batch), trainer.compute(batch)
    after = weights.of_model(model)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    assert first == second, "a step that is repeated gives the same"
    delta = np.frombuffer(first.state_delta[0], np.float32)
    x = batch.features.numpy()
    np.testing.assert_allclose(delta[:3], 0.1 * x.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(delta[3:], 0.1 * (x.var(0) - 1), rtol=1e-4, atol=1e-6)


def test_state_that_training_does_not_move_is_not_pushed() -> None:
    frozen = keras.layers.Dense(4, trainable=False)
    model = regression(frozen, keras.layers.BatchNormalization(trainable=False))
    step = trainer_of(model)[0].compute(batch_of())
    assert step.state_delta == ()


def test_frozen_weights_beside_moving_ones_have_a_difference_of_zeros() -> None:
    model = regression(keras.layers.Dense(3, trainable=False), keras.layers.BatchNormalization())
    step = trainer_of(model)[0].compute(batch_of())
    delta = np.frombuffer(step.state_delta[0], np.float32)
    assert delta.size == 12 + 6
    assert np.abs(delta[:12]).max() == 0
    assert np.abs(delta[12:]).min() > 0


def test_values_survive_the_way_through_a_payload() -> None:
    model = regression(keras.layers.Dense(5), keras.layers.BatchNormalization())
    arena = Arena(model)
    wanted = {w.name: np.random.default_rng(3).normal(size=w.shape) for w in arena.weights}
    payload = np.concatenate(
        [wanted[w.name].astype(np.float32).ravel() for w in arena.weights]
    ).view(np.uint8)
    WireValues(arena).assign(payload)
    for weight in arena.weights:
        np.testing.assert_allclose(weight.variable.numpy(), wanted[weight.name], rtol=1e-6)
    np.testing.assert_array_equal(arena.pack(), payload)


@pytest.mark.parametrize("bias", [False, True])
def test_values_that_arrive_do_not_change_the_model_before_they_are_assigned(bias: bool) -> None:
    # TensorFlow could use the memory of an array as the memory of a variable.
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, use_bias=bias)])
    arena = Arena(model)
    inbox = ReceiveBuffer(arena.nbytes)
    for value in (1.0, 2.0, 3.0):
        np.frombuffer(inbox.open(arena.nbytes), np.float32)[:] = value
        for weight in arena.weights:
            assert np.all(weight.variable.numpy() != value)
        WireValues(arena).assign(inbox.content)
        for weight in arena.weights:
            assert np.all(weight.variable.numpy() == value), weight.name


def test_float64_travels_after_float32_even_unaligned() -> None:
    inputs = keras.Input((3,))
    single = keras.layers.Dense(1, use_bias=True)(inputs)
    double = keras.layers.Dense(1, dtype="float64", use_bias=False)(inputs)
    single = keras.layers.Dense(1, use_bias=False)(single)
    model = keras.Model(inputs, keras.layers.Add(dtype="float64")([single, double]))
    trainer, arena = trainer_of(model)
    assert [(g.dtype, g.start) for g in arena.groups] == [("float32", 0), ("float64", 20)]
    assert [v.dtype for v in arena.describe()] == ["float32"] * 3 + ["float64"]
    step = trainer.compute(batch_of())
    assert [part.nbytes for part in step.gradient] == [20, 24]
    payload = arena.pack()
    payload[20:].view(np.uint8)[:] = np.array([1.0, 2.0, 3.0]).view(np.uint8)
    WireValues(arena).assign(payload)
    np.testing.assert_array_equal(arena.groups[1].weights[0].variable.numpy().ravel(), [1, 2, 3])


def test_one_trace_serves_whole_and_cut_minibatches() -> None:
    trainer, _ = trainer_of(regression())
    for size in (16, 16, 5, 16, 1, 12):
        trainer.compute(batch_of(size))
    assert trainer.traces == 1


def test_a_model_that_needs_its_size_is_traced_for_each_size() -> None:
    class Fixed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def build(self, shape: Any) -> None:
            self.dense.build(shape)
            self.built = True

        def call(self, x: Any, training: bool = False) -> Any:
            assert x.shape[0] is not None
            return tf.reshape(self.dense(x), [int(x.shape[0]), 1])

    model = Fixed()
    model.build((None, 3))
    trainer, _ = trainer_of(model)
    for size in (16, 5, 16):
        assert np.isfinite(trainer.compute(batch_of(size)).loss)


def test_dropout_draws_anew_each_step_and_its_seed_stays_here() -> None:
    model = regression(keras.layers.Dense(64), keras.layers.Dropout(0.5))
    trainer, arena = trainer_of(model)
    assert not any("seed" in weight.name for weight in arena.weights)
    assert trainer.compute(batch_of()).loss != trainer.compute(batch_of()).loss


def test_a_loss_that_is_not_finite_is_seen() -> None:
    trainer, _ = trainer_of(regression())
    batch = batch_of()
    bad = Batch(batch.features / 0.0, batch.labels, batch.size)
    assert not trainer.compute(bad).is_finite
    assert trainer.compute(batch).is_finite


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (keras.layers.Dense(2, dtype="float16"), "float16"),
        (keras.layers.Dense(2, dtype="bfloat16"), "bfloat16"),
        (keras.layers.Dense(2, kernel_constraint="non_neg"), "NonNeg"),
    ],
)
def test_what_the_master_could_not_keep_is_refused_by_name(
    layer: keras.layers.Layer, named: str
) -> None:
    with pytest.raises(EdlError) as caught:
        Arena(regression(layer))
    assert named in caught.value.what
    assert f"variable {layer.kernel.path} " in caught.value.what
    assert caught.value.remedy


def test_a_model_without_trainable_variables_is_refused() -> None:
    model = regression()
    model.trainable = False
    with pytest.raises(EdlError, match="no trainable variables"):
        Arena(model)


def test_mixed_precision_trains_in_float32() -> None:
    trainer, arena = trainer_of(regression(keras.layers.Dense(4, dtype="mixed_bfloat16")))
    assert {weight.dtype for weight in arena.weights} == {"float32"}
    assert np.isfinite(gradient_of(trainer.compute(batch_of()))).all()


def test_repeated_paths_get_names_of_their_own() -> None:
    shared = [keras.layers.Dense(1, name="twin") for _ in range(2)]
    model = Twins(shared)
    model.build((None, 3))
    names = [weight.name for weight in Arena(model).weights]
    assert len(names) == len(set(names)) == 4


class Twins(keras.Model):
    def __init__(self, layers: list[keras.layers.Layer]) -> None:
        super().__init__()
        self.twins = layers

    def build(self, shape: Any) -> None:
        for layer in self.twins:
            layer.build(shape)
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        return self.twins[0](x) + self.twins[1](x)


def test_a_payload_of_another_size_is_an_internal_error() -> None:
    with pytest.raises(EdlError, match="12 bytes"):
        ReceiveBuffer(8).open(12)


def test_variables_spared_from_weight_decay_are_named_for_the_master() -> None:
    """Keras forgets them when it serializes an optimizer; the master must not decay them."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="only")])
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    arena = Arena(model)
    assert "excluded_from_weight_decay" not in describe_optimizer(optimizer, arena)
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    described = describe_optimizer(optimizer, arena)
    assert described["excluded_from_weight_decay"] == [
        weight.name for weight in arena.weights if weight.name.endswith("bias")
    ]
    assert len(described["excluded_from_weight_decay"]) == 1
