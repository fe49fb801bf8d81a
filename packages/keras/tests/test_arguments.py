"""Mistakes in the arguments of ``fit`` are refused before anything starts."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import elasticdl
from edl_keras.arguments import plan_fit

X, Y = np.zeros((8, 2), np.float32), np.zeros(8, np.float32)
EarlyStopping = keras.callbacks.EarlyStopping


def with_nan(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with a number in row 3 that is none."""
    changed = array.copy()
    changed[(3, *(-1 for _ in array.shape[1:]))] = np.nan
    return changed


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))


def make_model() -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="small_net")
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("given", "where", "what"),
    [
        ({"y": None}, "y", "there are no labels"),
        ({"x": None}, "x", "there is no data"),
        ({"y": Y[:3]}, "x", "different numbers of rows"),
        ({"epochs": 0}, "epochs", "epochs is 0"),
        ({"batch_size": 1.5}, "batch_size", "batch_size is 1.5"),
        ({"steps_per_epoch": 3}, "steps_per_epoch", "fit takes no steps_per_epoch"),
        ({"num_epochs": 3}, "num_epochs", "fit sets num_epochs itself"),
        ({"num_worker": 3}, "num_worker", "fit has no argument num_worker"),
        ({"platform": "kubernetes"}, "platform", "pods of a cluster see no files"),
        ({"callbacks": [3]}, "callbacks", "callbacks has int"),
        ({"batch_size": 0}, "batch_size", "batch_size is 0"),
        ({"x": [[1, 2]] * 7 + [[1]]}, "x", "row 0 has 2, row 7 has 1"),
        ({"class_weight": {0: 1.0, 5: 2.0}}, "class_weight", "has the class 5, and the model"),
        ({"num_workers": 9}, "num_workers", "num_workers is 9, and there are 8 rows"),
        ({"num_workers": "2:5", "batch_size": 4}, "num_workers", "4 examples in a batch"),
        ({"callbacks": [EarlyStopping()]}, "callbacks", "'val_loss', and there is no validation"),
        ({"x": with_nan(X)}, "x", r"x\[3, 1\] is nan"),
        ({"y": with_nan(Y)}, "y", r"y\[3, 0\] is nan"),
        ({"y": np.array(["yes", "no"] * 4)}, "y", "texts such as 'yes', and the loss takes"),
        ({"validation_data": (with_nan(X), Y)}, "validation_data", r"x\[3, 1\] is nan"),
        ({"sample_weight": with_nan(Y)}, "sample_weight", r"sample_weight\[3\] is nan"),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_do(
    given: dict[str, Any], where: str, what: str, tmp_path: Path
) -> None:
    with pytest.raises(elasticdl.UsageError, match=what) as caught:
        elasticdl.fit(make_model(), **{"x": X, "y": Y, **given})
    assert caught.value.where == f"fit({where}=...)"
    assert caught.value.remedy
    assert not (tmp_path / "home").exists()


def test_a_model_has_to_be_compiled() -> None:
    with pytest.raises(elasticdl.ModelFileError, match="the model net is not compiled"):
        elasticdl.fit(keras.Sequential([keras.Input((2,))], name="net"), X, Y)
    with pytest.raises(elasticdl.UsageError, match="model is numpy ndarray"):
        elasticdl.fit(X, X, Y)


def test_several_workers_share_a_batch() -> None:
    options: dict[str, Any] = {"batch_size": 30, "num_workers": 4}
    assert plan_fit(make_model(), X, Y, options).minibatch_size == 8
    assert plan_fit(make_model(), X, Y, {"num_workers": "2:8"}).minibatch_size == 16
    assert plan_fit(make_model(), X, Y, {}).minibatch_size == 32


def test_defaults_of_keras_may_be_written_out() -> None:
    plan = plan_fit(
        make_model(), X, Y, {"validation_freq": 1, "initial_epoch": 0, "steps_per_epoch": None}
    )
    assert plan.job_options == {}
    assert plan.job.startswith("small-net-")


def test_editors_see_the_arguments() -> None:
    names = list(inspect.signature(elasticdl.fit).parameters)
    assert names[:4] == ["model", "x", "y", "batch_size"]
    assert {"num_workers", "validation_split", "output"} <= set(names)


def test_numbers_that_model_and_loss_take_are_left_to_them() -> None:
    def loss(labels: Any, outputs: Any) -> Any:
        return keras.ops.nan_to_num(labels - outputs) ** 2

    fill = keras.layers.Lambda(keras.ops.nan_to_num)
    model = keras.Sequential([keras.Input((2,)), fill, keras.layers.Dense(1)])
    model.compile("sgd", loss)
    plan_fit(model, with_nan(X), with_nan(Y), {})
    monitor = EarlyStopping(monitor="loss")
    validated = {"validation_split": 0.5, "callbacks": EarlyStopping()}
    for options in ({"callbacks": [monitor]}, validated, {"num_workers": "1:8"}):
        plan_fit(make_model(), X, Y, options)


def test_all_rows_with_such_numbers_are_counted() -> None:
    values = np.full((8, 2, 2), np.inf, np.float32)
    model = keras.Sequential([keras.Input((2, 2)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(elasticdl.UsageError, match=r"x\[0, 0, 0\] is inf, and 7 more") as caught:
        elasticdl.fit(model, values, Y)
    assert "np.isfinite(x).all(axis=(1, 2))" in caught.value.remedy
