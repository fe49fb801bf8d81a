"""Keras continues from ``model.keras`` as if its own ``fit`` had trained the model before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from zoo_folder import ZooFolder

from edl_worker.core.step_engine import OptimizerState
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from edl_worker.engines.tensorflow.saved_optimizer import find_slots, with_restored_optimizer
from edl_worker.engines.tensorflow.training.arena import Arena

SOURCE = """
import keras
import tensorflow as tf

point = keras.Input((3,), name="point")
hidden = keras.layers.Dense(4, activation="tanh", use_bias=False, name="hidden")(point)
hidden = keras.layers.BatchNormalization(name="norm", center=False)(hidden)
fixed = keras.layers.Dense(4, name="fixed", trainable=False)(hidden)
model = keras.Model(point, keras.layers.Dense(1, name="head")(fixed))

def dataset_fn(dataset, mode):
    return dataset

loss = {loss}
optimizer = keras.optimizers.{optimizer}
def eval_metrics_fn():
    return {{"error": {metric}}}
{more}
"""
X = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)
Y = (X[:, :1] > X[:, 1:2]).astype(np.float32)
Load = Callable[..., ModelFile]


@pytest.fixture
def load(zoo: ZooFolder) -> Load:
    def load(
        optimizer: str = "Adam(0.01)",
        loss: str = '"mse"',
        metric: str = "keras.metrics.MeanAbsoluteError(name='error')",
        more: str = "",
    ) -> ModelFile:
        source = SOURCE.format(optimizer=optimizer, loss=loss, metric=metric, more=more)
        zoo.write("mine.py", source)
        return load_model_file(zoo.reference("mine"), seed=7)

    return load


def fit(model: keras.Model, epochs: int) -> None:
    model.run_eagerly = True  # tracing takes longer than the few steps
    model.fit(X, Y, batch_size=32, epochs=epochs, shuffle=False, verbose=0)


def state_of(file: ModelFile, optimizer: Any) -> OptimizerState:
    """Return the state of an optimizer of Keras as the master would send it."""
    arena, slots = Arena(file.model), {}
    for name in find_slots(file) or ():
        kept = [v for v in optimizer.variables if v.path.endswith(f"_{name}")]
        mine = {id(v): slot for v, slot in zip(file.model.trainable_variables, kept, strict=True)}
        parts = [
            (mine[id(w.variable)] if w.trainable else w.variable).numpy().reshape(-1)
            for w in arena.weights
        ]
        slots[name] = np.concatenate(parts).view(np.uint8)
    return OptimizerState(int(optimizer.iterations.numpy()), None, slots)


def save(file: ModelFile, state: OptimizerState | None, path: Path) -> keras.Model:
    with with_restored_optimizer(file, Arena(file.model), state):
        file.model.save(path)
    loaded: keras.Model = keras.models.load_model(path)
    return loaded


@pytest.mark.parametrize(
    "optimizer",
    [
        "SGD(0.1)",
        "SGD(0.1, momentum=0.9, nesterov=True)",
        "Adam(0.01, amsgrad=True)",
        "Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 5, 0.8))",
        "AdamW(0.01, weight_decay=0.1)",
        "Adagrad(0.1)",
        "Adadelta(1.0)",
        "RMSprop(0.01, momentum=0.5, centered=True)",
        "Adamax(0.01)",
        "Nadam(0.01)",
        "Ftrl(0.1)",
        "Lion(0.01)",
    ],
)
def test_every_optimizer_continues_as_if_it_had_never_stopped(
    load: Load, tmp_path: Path, optimizer: str
) -> None:
    file = load(optimizer)
    before = keras.models.clone_model(file.model)
    before.set_weights(file.model.get_weights())
    before.compile(type(file.optimizer).from_config(file.optimizer.get_config()), "mse")
    fit(before, 3)
    file.model.set_weights(before.get_weights())
    loaded = save(file, state_of(file, before.optimizer), tmp_path / "model.keras")
    fit(before, 2)
    fit(loaded, 2)
    assert loaded.optimizer.iterations == before.optimizer.iterations == 10
    for mine, keras_own in zip(loaded.get_weights(), before.get_weights(), strict=True):
        np.testing.assert_allclose(mine, keras_own, rtol=1e-4, atol=1e-6)
    assert not file.model.compiled, "the model itself stays as it is"
    assert "optimizer" not in vars(file.model)


def test_the_learning_rate_that_was_set_last_goes_on(load: Load, tmp_path: Path) -> None:
    file = load("Adam(0.01)")
    slots = state_of(file, build_optimizer(file)).slots
    loaded = save(file, OptimizerState(5, 0.125, slots), tmp_path / "model.keras")
    assert float(loaded.optimizer.learning_rate) == 0.125
    assert set(loaded.evaluate(X, Y, verbose=0, return_dict=True)) == {"loss", "error"}


def build_optimizer(file: ModelFile) -> keras.optimizers.Optimizer:
    file.optimizer.build(file.model.trainable_variables)
    return file.optimizer


@pytest.mark.parametrize(
    ("loss", "metric", "has_loss"),
    [
        ("lambda labels, predictions: tf.square(labels - predictions)", "'mae'", False),
        ("keras.losses.Huber(delta=2.0)", "lambda labels, predictions: predictions", True),
        ("keras.losses.mean_squared_error", "keras.metrics.MeanAbsoluteError", True),
    ],
)
def test_a_loss_that_only_the_model_file_has_is_left_out(
    load: Load, tmp_path: Path, loss: str, metric: str, has_loss: bool
) -> None:
    file = load("SGD(0.1)", loss, metric)
    loaded = save(file, OptimizerState(5, None, {}), tmp_path / "model.keras")
    assert loaded.optimizer.iterations == 5
    if not has_loss:
        loaded.compile(loaded.optimizer, "mse")
    fit(loaded, 1)
    assert loaded.optimizer.iterations == 7


def test_a_model_that_its_file_compiles_keeps_that(load: Load, tmp_path: Path) -> None:
    file = load(more="model.compile(optimizer, 'huber', metrics=['mae'])\ndel loss, optimizer\n")
    own = file.model.optimizer
    state = state_of(file, build_optimizer(file))
    loaded = save(file, OptimizerState(5, None, state.slots), tmp_path / "model.keras")
    assert loaded.optimizer.iterations == 5
    assert loaded.loss == "huber"
    assert file.model.optimizer is own


@pytest.mark.parametrize("optimizer", ["Adafactor()", "Lamb()", "Adam(use_ema=True)"])
def test_optimizers_whose_state_has_another_form_are_left_out(
    load: Load, tmp_path: Path, optimizer: str
) -> None:
    file = load(optimizer)
    assert find_slots(file) is None
    assert not save(file, None, tmp_path / "model.keras").compiled
