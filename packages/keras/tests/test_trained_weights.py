"""The weights of a job come back, whatever the layers are called here."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from edl.plugins.errors import Problem
from edl_keras.trained_weights import find_weights, load_weights, save_weights


def make_model(units: int = 3) -> keras.Model:
    layers = keras.layers
    model = keras.Sequential([keras.Input((2,)), layers.Dense(units), layers.BatchNormalization()])
    model.compile("adam", "mse")
    return model


def test_keras_s_own_file_brings_the_optimizer_s_state(tmp_path: Path) -> None:
    trained = make_model()
    trained.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    trained.save(tmp_path / "model.keras")
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    load_weights(model, tmp_path)
    for one, other in zip(model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(model.optimizer.iterations) == 1


def test_values_are_given_in_the_order_of_the_model(tmp_path: Path) -> None:
    trained = make_model()
    values = {f"other/{at}": each for at, each in enumerate(trained.get_weights())}
    metadata = {"order": json.dumps(list(values))}
    save_file(values, tmp_path / "parameters.safetensors", metadata=metadata)
    model = make_model()
    load_weights(model, tmp_path)
    for one, other in zip(model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(Problem, match="weights of the job do not fit the model"):
        load_weights(make_model(5), tmp_path)


class Parts(keras.Model):
    def __init__(self, part: keras.Model) -> None:
        super().__init__()
        self.part = part


def test_initial_weights_have_no_state_of_the_optimizer(tmp_path: Path) -> None:
    model = make_model()
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    save_weights(model, tmp_path)
    other = make_model()
    other.optimizer.build(other.trainable_variables)
    other.load_weights(find_weights(tmp_path))
    assert int(other.optimizer.iterations) == 0
    assert int(model.optimizer.iterations) == 1
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_a_model_without_call_gives_the_weights_of_its_parts(tmp_path: Path) -> None:
    model = Parts(make_model())
    save_weights(model, tmp_path)
    with safe_open(find_weights(tmp_path), framework="numpy") as file:
        assert sorted(file.keys()) == sorted(each.path for each in model.weights)
