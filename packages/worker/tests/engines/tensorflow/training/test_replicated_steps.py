"""Replicas whose own optimizer updates them end with the values that ``fit`` ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from replica_batches import BATCHES, SIZE, X, Y, batch_of, fit, reduce_steps
from zoo_folder import ZooFolder

from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.replica_steps import ReplicaSteps

SOURCE = """
import keras
import tensorflow as tf
from keras.optimizers import *
{before}
point = keras.Input((3,), name="point")
hidden = keras.layers.Dense(4, activation="tanh", name="hidden"{layer})(point)
{norm}
model = keras.Model(point, keras.layers.Dense(2, name="head", dtype="float32")(hidden))

def dataset_fn(dataset, mode):
    return dataset

loss = {loss}
def optimizer():
    return {optimizer}
{more}
"""
NORM = 'hidden = keras.layers.BatchNormalization(name="norm")(hidden)'
MULTI = 'MultiOptimizer(OptimizerMap(Adam(0.01), {"hidden/.*": SGD(0.1, momentum=0.9)}))'
OWN = """
class Own(keras.Optimizer):
    def build(self, variables):
        super().build(variables)
        self.last = self.add_optimizer_variables(variables, "last")
        self.flip = self.add_variable((), "zeros", "bool", name="flip")

    def update_step(self, gradient, variable, rate):
        last = self.last[self._get_variable_index(variable)]
        variable.assign(variable - rate * (gradient + last))
        last.assign(gradient)

    def get_config(self):
        raise NotImplementedError
"""


def apart(head: str, hidden: str) -> str:
    """Return an optimizer for each layer, as one: two optimizers then have one trace."""
    return f'MultiOptimizer(OptimizerMap({head}, {{"hidden/.*": {hidden}}}))'


OPTIMIZERS = [
    "SGD(0.1)",
    "Adam(0.01, amsgrad=True)",
    MULTI,
    apart("SGD(0.1, momentum=0.9, nesterov=True)", "Adagrad(0.1)"),
    apart("AdamW(0.01, weight_decay=0.1)", "Adadelta(1.0)"),
    apart("Adafactor(0.05)", "RMSprop(0.01, momentum=0.5, centered=True)"),
    apart("Adamax(0.01)", "Nadam(0.01)"),
    apart("Ftrl(0.1)", "Lamb(0.01)"),
    apart("Lion(0.01)", "Muon(0.01)"),
    "ScheduleFreeAdamW(0.01, warmup_steps=2)",
    "LossScaleOptimizer(Adam(0.01), dynamic_growth_steps=2)",
    "Adam(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)",
    "SGD(schedules.ExponentialDecay(0.5, 2, 0.5))",
    "SGD(lambda: 0.1)",
    "SGD(0.5, clipnorm=0.01)",
    "SGD(0.5, global_clipnorm=0.01)",
    "Adam(0.01, gradient_accumulation_steps=2)",
    "SGD(0.1, loss_scale_factor=128.0)",
    "Own(0.1)",
]
Load = Callable[..., ModelFile]


@pytest.fixture
def load(zoo: ZooFolder) -> Iterator[Load]:
    def load(
        optimizer: str = "Adam(0.01)",
        *,
        loss: str = '"mse"',
        norm: str = "",
        layer: str = "",
        before: str = OWN,
        more: str = "",
    ) -> ModelFile:
        zoo.write(
            "mine.py",
            SOURCE.format(
                optimizer=optimizer, loss=loss, norm=norm, layer=layer, before=before, more=more
            ),
        )
        file = zoo.load("mine", seed=7, replicated=True)
        file.build(BATCHES[0])
        return file

    policy = keras.mixed_precision.dtype_policy()
    yield load
    keras.mixed_precision.set_dtype_policy(policy)


def values_of(file: ModelFile) -> list[Any]:
    """Return the weights and the state of the optimizer."""
    state = [variable.numpy() for variable in file.optimizer.variables]
    return [*file.model.get_weights(), *state]


def assert_same_values(mine: ModelFile, other: ModelFile, rtol: float = 1e-4) -> None:
    assert_close(values_of(mine), values_of(other), rtol)


def assert_close(mine: list[Any], other: list[Any], rtol: float = 1e-4) -> None:
    for one, reference in zip(mine, other, strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(reference, np.float64), rtol, 1e-6
        )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_makes_the_steps_of_fit(load: Load, optimizer: str) -> None:
    file = load(optimizer)
    steps = ReplicaSteps(file)
    start, before = steps.pack(), file.model.get_weights()
    losses = [steps.step(batch) for batch in BATCHES]
    steps.finish()  # as fit does
    alone = values_of(file)

    steps.assign(start)
    for at in range(0, len(X), SIZE):
        reduce_steps(steps, [batch_of(at, at + 3), batch_of(at + 3, at + SIZE)])
    steps.finish()
    several = values_of(file)

    reference = load(optimizer)
    fit(reference)
    expected = values_of(reference)
    changed = zip(before, expected, strict=False)
    assert all(not np.array_equal(then, now) for then, now in changed)
    assert np.mean(losses) == pytest.approx(reference.model.history.history["loss"][0], rel=1e-4)
    assert_close(alone, expected)
    assert_close(several, expected)


def test_moving_statistics_are_those_of_fit_or_weighted_means(load: Load) -> None:
    reference, file = (load(norm=NORM) for _ in range(2))
    fit(reference, 2)
    steps = ReplicaSteps(file)
    start = steps.pack()
    for batch in BATCHES[:2]:
        steps.step(batch)
    assert_same_values(file, reference)

    norm, means = file.model.get_layer("norm"), []
    parts = batch_of(0, 2), batch_of(2, SIZE)
    for part in parts:  # of single replicas
        steps.assign(start)
        steps.step(part)
        means.append(norm.moving_mean.numpy() * part.size / SIZE)
    assert not np.allclose(means[0] / parts[0].size, means[1] / parts[1].size)
    steps.assign(start)
    reduce_steps(steps, parts)
    np.testing.assert_allclose(norm.moving_mean.numpy(), sum(means), 1e-4, 1e-7)


@pytest.mark.parametrize(
    ("optimizer", "norm"),
    [
        ("Nadam(0.01)", NORM),
        ("LossScaleOptimizer(Adam(0.01, amsgrad=True), dynamic_growth_steps=2)", ""),
        ("Adam(0.01, use_ema=True, gradient_accumulation_steps=2)", ""),
        (MULTI, ""),
        ("Own(0.1)", ""),
    ],
)
def test_a_payload_has_all_that_training_needs(load: Load, optimizer: str, norm: str) -> None:
    steps, newcomer = (ReplicaSteps(load(optimizer, norm=norm)) for _ in range(2))
    for batch in BATCHES[:3]:
        steps.step(batch)
    payload = steps.pack()
    assert payload.nbytes == steps.layout.nbytes
    newcomer.assign(payload)
    np.testing.assert_array_equal(newcomer.pack(), payload)
    for each in (steps, newcomer):
        for batch in BATCHES[3:]:
            each.step(batch)
    np.testing.assert_array_equal(newcomer.pack(), steps.pack())
    assert not np.array_equal(payload, steps.pack())
    assert not np.shares_memory(payload, newcomer.pack())


def test_numbers_of_all_types_arrive_exactly(load: Load) -> None:
    file, other = load("Own(0.1)"), load("Own(0.1)")
    steps, newcomer = ReplicaSteps(file), ReplicaSteps(other)
    file.optimizer.flip.assign(True)
    file.optimizer.iterations.assign(2**53 - 1)
    newcomer.assign(steps.pack())
    assert bool(other.optimizer.flip.numpy()) is True
    assert int(other.optimizer.iterations.numpy()) == 2**53 - 1


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_loss_that_is_not_finite_changes_nothing(load: Load, value: float) -> None:
    steps = ReplicaSteps(load(norm=NORM))
    steps.step(BATCHES[0])
    before, labels = steps.pack(), Y.copy()
    labels[3] = value
    assert not np.isfinite(steps.step(batch_of(0, SIZE, y=labels)))
    np.testing.assert_array_equal(steps.pack(), before)
    assert not steps.gradient(batch_of(0, SIZE, y=labels)).is_finite
    steps.step(BATCHES[1])
    assert not np.array_equal(steps.pack(), before)


def test_a_gradient_that_is_not_finite_changes_nothing(load: Load) -> None:
    loss = "lambda labels, outputs: tf.sqrt(tf.reduce_sum((labels - outputs) ** 2))"
    steps = ReplicaSteps(load("SGD(0.1)", loss=loss))
    before, zeros = steps.pack(), batch_of(0, SIZE, np.zeros_like(X), np.zeros_like(Y))
    assert steps.gradient(zeros).loss == 0.0
    assert not steps.gradient(zeros).is_finite
    assert np.isnan(steps.step(zeros))
    np.testing.assert_array_equal(steps.pack(), before)
    assert steps.gradient(BATCHES[0]).is_finite


def test_an_optimizer_that_scales_the_loss_handles_what_is_not_finite(load: Load) -> None:
    file = load("LossScaleOptimizer(SGD(0.1), initial_scale=3e38)")
    steps, before = ReplicaSteps(file), file.model.get_weights()
    batch = batch_of(0, SIZE, y=100 * Y)
    assert steps.step(batch) > 1.0
    reduce_steps(steps, [batch])
    assert file.optimizer.dynamic_scale.numpy() == pytest.approx(3e38 / 4)
    for then, now in zip(before, file.model.get_weights(), strict=True):
        np.testing.assert_array_equal(now, then)


def test_mixed_float16_scales_the_loss_as_compile_does(load: Load) -> None:
    policy = 'keras.mixed_precision.set_global_policy("mixed_float16")'
    file = load("Adam(0.01)", before=policy)
    assert isinstance(file.optimizer, keras.optimizers.LossScaleOptimizer)
    reference = load("Adam(0.01)", before=policy)
    fit(reference)
    steps = ReplicaSteps(file)
    for batch in BATCHES:
        steps.step(batch)
    assert_same_values(file, reference, 1e-2)
    compiled = "model.compile(optimizer(), loss, auto_scale_loss=False)\ndel optimizer"
    assert isinstance(load(before=policy, more=compiled).optimizer, keras.optimizers.Adam)


@pytest.mark.parametrize(
    "optimizer",
    ["SGD(0.1)", "LossScaleOptimizer(SGD(0.1))", "SGD(schedules.ExponentialDecay(0.1, 100, 0.9))"],
)
def test_the_learning_rate_can_be_set_and_taken_back(load: Load, optimizer: str) -> None:
    file = load(optimizer)
    steps = ReplicaSteps(file)

    def change() -> float:
        """Return how far a step moves the values, alone or with others."""
        moved = []
        for update in (steps.step, lambda batch: reduce_steps(steps, [batch])):
            steps.assign(start)
            update(BATCHES[0])
            moved.append(float(np.abs(file.model.get_weights()[0] - weights).max()))
        assert moved[0] == pytest.approx(moved[1], rel=1e-3)
        return moved[0]

    start, weights = steps.pack(), file.model.get_weights()[0]
    own = change()
    assert own
    for rate, expected in [(0.0, 0.0), (0.05, own / 2), (None, own), (0.2, 2 * own), (None, own)]:
        steps.set_learning_rate(rate)
        assert change() == pytest.approx(expected, rel=1e-3)


def test_the_average_of_the_optimizer_becomes_the_values(load: Load) -> None:
    reference, file = (load("SGD(0.1, use_ema=True, ema_momentum=0.9)") for _ in range(2))
    steps = ReplicaSteps(file)
    for batch in BATCHES:
        steps.step(batch)
    last = file.model.get_weights()
    steps.finish()
    assert not np.array_equal(file.model.get_weights()[0], last[0])
    fit(reference)  # which ends with the average, too
    assert_same_values(file, reference)

    steps = ReplicaSteps(load("SGD(0.1)"))
    steps.step(BATCHES[0])
    before = steps.pack()
    steps.finish()
    np.testing.assert_array_equal(steps.pack(), before)


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("Adafactor(0.05)", ""),
        ("Muon(0.01)", ""),
        ("Adam(0.01, use_ema=True)", ""),
        ("LossScaleOptimizer(Adam(0.01))", ""),
        (MULTI, ""),
        ("Adam(0.01)", "model.compile(optimizer(), loss)\ndel optimizer, loss"),
    ],
)
def test_keras_continues_from_the_exported_model(
    load: Load, tmp_path: Path, optimizer: str, more: str
) -> None:
    file = load(optimizer, more=more)
    steps = ReplicaSteps(file)
    for batch in BATCHES:
        steps.step(batch)
    compiled, path = file.model.compiled, tmp_path / "model.keras"
    (form,) = [form for form in steps.export_forms() if form.file == path.name]
    form.check(True)
    form.save(path)
    assert file.model.compiled is compiled, "the model itself stays as it is"
    loaded = keras.models.load_model(path)
    for mine, saved in zip(file.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), saved.numpy())
    loaded.run_eagerly = True  # not worth a trace
    loaded.fit(X[:SIZE], Y[:SIZE], batch_size=SIZE, shuffle=False, verbose=0)
    steps.step(BATCHES[0])
    steps.finish()  # as fit does
    for mine, saved in zip(file.model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(mine, saved, 1e-5, 1e-6)


def test_the_master_gets_the_state_of_any_optimizer(load: Load) -> None:
    described = ReplicaSteps(load("Own(0.1)")).describe()
    state = [each for each in described.variables if each.name.startswith("optimizer/")]
    assert {each.name for each in state} == {
        "optimizer/own/iteration",
        "optimizer/own/flip",
        *(f"optimizer/own/{name}_last" for name in ("hidden_kernel", "hidden_bias")),
        *(f"optimizer/own/{name}_last" for name in ("head_kernel", "head_bias")),
    }
    assert not any(each.trainable for each in state)
    assert {each.dtype for each in state} == {"float32", "float64"}
    assert '"Own"' in described.optimizer_json
    assert '"learning_rate"' in ReplicaSteps(load("SGD(lambda: 0.1)")).describe().optimizer_json
    assert [part.dtype for part in ReplicaSteps(load(norm=NORM)).replica_parts] == ["float32"] * 2


def test_constraints_are_kept(load: Load) -> None:
    file = load("SGD(5.0)", layer=", kernel_constraint='non_neg'")
    steps = ReplicaSteps(file)
    steps.step(BATCHES[0])
    reduce_steps(steps, BATCHES[1:2])
    assert file.model.get_layer("hidden").kernel.numpy().min() == 0.0


def test_a_variable_without_a_gradient_is_left_alone(load: Load) -> None:
    stopped = "hidden = keras.layers.Lambda(lambda x: tf.stop_gradient(x))(hidden)"
    optimizer = "AdamW(0.01, weight_decay=0.5)"
    reference, file = (load(optimizer, norm=stopped, before="") for _ in range(2))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        fit(reference)
    steps = ReplicaSteps(file)
    start, before = steps.pack(), file.model.get_layer("hidden").get_weights()
    for update in (steps.step, lambda batch: reduce_steps(steps, [batch])):
        steps.assign(start)
        for batch in BATCHES:
            update(batch)
        assert_same_values(file, reference)
        np.testing.assert_array_equal(file.model.get_layer("hidden").get_weights()[0], before[0])


def test_minibatches_of_all_sizes_have_one_trace(load: Load) -> None:
    steps = ReplicaSteps(load())
    for size in (8, 5, 8, 3):
        steps.step(batch_of(0, size))
        reduce_steps(steps, [batch_of(0, size), batch_of(size, size + 2)])
        steps.set_learning_rate(0.1 / size)
    assert steps.traces == steps.update_traces == 1
