"""Arrays that do not fit the model, its loss or its metrics are refused before any job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import elasticdl
from edl_keras.fit_checks import name_in_fit

X = np.zeros((8, 4), np.float32)
Y = np.array([0, 1] * 4)
TEXTS = np.array(["a"] * 8)


class Table:
    """A table of pandas with a column of texts, as far as ``fit`` looks at it."""

    columns = ("age", "city")

    def __getitem__(self, name: str) -> Any:
        return Column(X[:, 0] if name == "age" else TEXTS)

    def to_numpy(self) -> Any:
        raise AssertionError("it has no single type")


class Column:
    """A column of a table."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def to_numpy(self) -> Any:
        return self._values


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    yield
    assert not (tmp_path / "home").exists(), "a job was begun"


def make(
    *shape: int, units: int = 1, loss: Any = "mse", activation: str | None = None
) -> keras.Model:
    layer = keras.layers.Dense(units, activation=activation)
    model = keras.Sequential([keras.Input(shape), layer])
    model.compile("sgd", loss)
    return model


def make_wide() -> keras.Model:
    first, second = keras.Input((4,), name="a"), keras.Input((2,), name="b")
    joined = keras.layers.concatenate([first, second])
    outputs = [keras.layers.Dense(1, name=name)(joined) for name in ("p", "q")]
    model = keras.Model([first, second], outputs)
    model.compile("sgd", ["mse", "mse"])
    return model


def generate() -> Iterator[Any]:
    yield X, Y


SPARSE, CATEGORICAL = "sparse_categorical_crossentropy", "categorical_crossentropy"


@pytest.mark.parametrize(
    ("model", "x", "y", "where", "what", "remedy"),
    [
        (make(784), np.zeros((8, 28, 28)), Y, "x", "shape (28, 28)", "x.reshape(-1, 784)"),
        (
            make(32, 16, 3),
            np.zeros((8, 3, 32, 16), np.float32),
            *(Y, "x", "shape (3, 32, 16)", "x.transpose(0, 2, 3, 1): the dimensions"),
        ),
        (make(5), X, Y, "x", "rows of the shape (4,)", "keras.Input((4,))"),
        (make(1), TEXTS, Y, "x", "x has texts", 'dtype="string"'),
        (make(2), Table(), Y, "x", "columns without numbers (city)", "x['city']"),
        (
            make_wide(),
            X,
            [Y, Y],
            "x",
            "x has 1 array, and the model has 2 inputs",
            "by their names",
        ),
        (make_wide(), {"a": X, "c": X}, [Y, Y], "x", "the keys a, c", "the key 'b'"),
        (make_wide(), [X, X[:, :2]], Y, "y", "the model has 2 outputs (p, q)", "y=[first, second]"),
        (make(4), generate(), None, "x", "x is a generator", "np.concatenate"),
    ],
)
def test_arrays_that_the_model_does_not_take(
    model: keras.Model, x: Any, y: Any, where: str, what: str, remedy: str
) -> None:
    with pytest.raises(elasticdl.UsageError) as caught:
        elasticdl.fit(model, x, y)
    assert caught.value.where == f"fit({where}=...)"
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("loss", "labels", "remedy"),
    [
        (SPARSE, Y + 1, "y - 1"),
        (SPARSE, np.eye(2)[Y], "y.argmax(-1)"),
        (CATEGORICAL, Y, "keras.utils.to_categorical(y, 2)"),
        (CATEGORICAL, np.eye(3)[Y], "Give the last layer 3 units"),
    ],
)
def test_labels_that_the_loss_does_not_take(loss: str, labels: Any, remedy: str) -> None:
    with pytest.raises(elasticdl.ModelFileError) as caught:
        elasticdl.fit(make(4, units=2, loss=loss, activation="softmax"), X, labels)
    assert caught.value.where == "model.compile(loss=...)"
    assert remedy in caught.value.remedy


def test_steps_of_a_generator_are_refused_with_it() -> None:
    with pytest.raises(elasticdl.UsageError, match="x is a generator") as caught:
        elasticdl.fit(make(4), generate(), steps_per_epoch=3)
    assert "steps_per_epoch" in caught.value.remedy


def test_a_normalization_that_was_never_adapted() -> None:
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Normalization(name="scale")])
    model = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(elasticdl.ModelFileError, match="scale was never adapted") as caught:
        elasticdl.fit(model, X, Y)
    assert "scale.adapt(x)" in caught.value.remedy


def test_a_message_of_a_job_has_the_names_of_fit() -> None:
    text = "Use a smaller --minibatch-size, or num_epochs=3."
    assert name_in_fit(text) == "Use a smaller batch_size, or epochs=3."
