"""The model file of a job of ``fit`` makes the model again, with the user's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import LoadZoo

from edl.plugins.errors import Problem
from edl_keras.fit_data import read_data
from edl_keras.model_config import check_copy, describe_model
from edl_keras.model_file import write_zoo

FACTOR = 3.0


class Times(keras.layers.Layer):
    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x: Any) -> Any:
        return x * self.factor * FACTOR


class Net(keras.Model):
    def __init__(self, units: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.first = keras.layers.Dense(units, activation=lambda x: x + 1.0)
        self.last = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


class Forgetful(keras.Model):
    def __init__(self, units: int = 2) -> None:
        super().__init__()
        self.last = keras.layers.Dense(units)

    def call(self, x: Any) -> Any:
        return self.last(x)


class Pair(keras.Model):
    def __init__(self, encoder: Any, decoder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder

    def call(self, x: Any) -> Any:
        return self.decoder(self.encoder(x))


class OwnCompile(keras.Model):
    def compile(self, first: Any, second: Any) -> None:
        super().compile("sgd", "mse")


class Hidden(keras.layers.Layer):
    def __init__(self, table: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def call(self, x: Any) -> Any:
        return x


def own_loss(guess: Any, truth: Any) -> Any:  # the names are misleading, the order counts
    return keras.ops.mean(keras.ops.abs(guess - 2 * truth), axis=-1)


def hits(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.cast(y_true > y_pred, "float32")


def functional() -> keras.Model:
    words = keras.layers.StringLookup()
    words.adapt(np.array(["b", "a", "b"]))
    city, age = keras.Input((), dtype="string", name="city"), keras.Input((1,), name="age")
    place = keras.layers.Embedding(words.vocabulary_size(), 2)(words(city))
    x = Times(2.0)(keras.layers.concatenate([place, age]))
    model = keras.Model([city, age], keras.layers.Dense(1, activation=lambda x: x * 2)(x))
    model.compile(keras.optimizers.Adam(0.25), own_loss, metrics=["mae", hits])
    return model


def copy(model: keras.Model, x: Any, y: Any, folder: Path, load_zoo: LoadZoo) -> Any:
    values = {"batch_size": 2, "training_metrics": None}
    row = keras.tree.map_structure(lambda array: array[:1], x)
    write_zoo(folder / "zoo", model, row, read_data(x, y).layout(), [], values)
    return load_zoo(folder / "zoo")


def test_a_functional_model_is_the_same_with_layers_losses_and_metrics_of_the_user(
    tmp_path: Path, load_zoo: LoadZoo
) -> None:
    model = functional()
    x = {"city": np.array(["a", "b", "c"], object), "age": np.ones((3, 1), np.float32)}
    y = np.arange(3.0)
    made = copy(model, x, y, tmp_path, load_zoo).model
    made.set_weights(model.get_weights())
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in x.items()}
    np.testing.assert_allclose(made(tensors), model(tensors))
    assert made.optimizer.learning_rate == 0.25
    pairs = [
        each.evaluate(tensors, y[:, None], verbose=0, return_dict=True) for each in (made, model)
    ]
    assert pairs[0] == pytest.approx(pairs[1])
    assert sorted(pairs[0]) == ["hits", "loss", "mae"]
    assert model.layers[2].input_vocabulary is None if hasattr(model.layers[2], "adapt") else True


def test_a_subclassed_model_is_the_same(tmp_path: Path, load_zoo: LoadZoo) -> None:
    model = Net(3)
    model.compile("sgd", "mse")
    x = np.ones((2, 4), np.float32)
    model(x)
    made = copy(model, x, np.ones(2), tmp_path, load_zoo).model
    made(x)
    made.set_weights(model.get_weights())
    np.testing.assert_allclose(made(x), model(x))


def test_a_model_of_models_is_the_same(tmp_path: Path, load_zoo: LoadZoo) -> None:
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), Times(2.0)])
    decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model = Pair(encoder, decoder)
    model.compile("sgd", "mse")
    x = np.ones((2, 3), np.float32)
    model(x)
    made = copy(model, x, x, tmp_path, load_zoo).model
    made(x)
    made.set_weights(model.get_weights())
    np.testing.assert_allclose(made(x), model(x))


def test_layers_of_the_user_get_the_policy_of_the_program(
    tmp_path: Path, load_zoo: LoadZoo
) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential([keras.Input((2,)), Times(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        values = {"batch_size": 2, "training_metrics": None}
        x = np.ones((2, 2), np.float32)
        write_zoo(tmp_path / "zoo", model, x, read_data(x, x).layout(), [], values)
        keras.config.set_dtype_policy("float32")
        load_zoo(tmp_path / "zoo")
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


class Parts(keras.Model):
    def __init__(self, part: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.part = part

    def train_step(self, data: Any) -> Any:
        return {"loss": self.part(data)}


def test_a_model_without_call_is_made_of_its_parts(tmp_path: Path, load_zoo: LoadZoo) -> None:
    model = Parts(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    model.compile("sgd")
    x = np.ones((2, 2), np.float32)
    values = {"batch_size": 2, "training_metrics": None}
    write_zoo(tmp_path / "zoo", model, x, read_data(x).layout(), [], values)
    made = load_zoo(tmp_path / "zoo").model
    assert [each.shape for each in made.weights] == [each.shape for each in model.weights]


def test_a_model_that_forgets_its_arguments_is_refused() -> None:
    """Keras 3.15 describes it with the defaults."""
    model = Forgetful(3)
    model.compile("sgd", "mse")
    x = np.ones((1, 3), np.float32)
    model(x)
    with pytest.raises(Problem, match="Forgetful has other weights when it is made again"):
        check_copy(model, describe_model(model), x)


def test_weights_of_a_model_fit_the_one_that_is_made_again(
    tmp_path: Path, load_zoo: LoadZoo
) -> None:
    model = functional()
    x = {"city": np.array(["a"], object), "age": np.ones((1, 1))}
    made = copy(model, x, np.ones(1), tmp_path, load_zoo).model
    model.save_weights(tmp_path / "a.weights.h5")
    made.load_weights(tmp_path / "a.weights.h5")
    for one, other in zip(made.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_lambda_keeps_its_name() -> None:
    model = functional()
    describe_model(model)
    assert model.layers[-1].activation.__name__ == "<lambda>"


def test_a_compile_of_its_own_is_refused() -> None:
    model = OwnCompile()
    model.compile(1, 2)
    with pytest.raises(Problem, match="OwnCompile has a compile of its own") as caught:
        describe_model(model)
    assert "compile_from_config" in caught.value.remedy


def test_a_layer_that_keras_cannot_describe_is_refused() -> None:
    model = keras.Sequential([keras.Input((2,)), Hidden(object())])
    model.compile("sgd", "mse")
    with pytest.raises(Problem, match="Keras cannot describe the model") as caught:
        describe_model(model)
    assert "get_config" in caught.value.remedy
