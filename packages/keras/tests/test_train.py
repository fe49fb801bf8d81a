"""``elasticdl.train`` with a model and an input function of the program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import LoadZoo

import elasticdl
from edl.plugins.jobs import api
from edl_keras import train
from edl_keras.fit_job import FitJob

WIDTH = 3


def parse(dataset: Any, mode: Any) -> Any:
    return dataset.map(lambda record: (record, WIDTH))


def build() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="built")


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of all jobs that are submitted."""
    found: list[dict[str, Any]] = []
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    original = api.train

    def record(**options: Any) -> Any:
        return original(**options) if "model" in options else found.append(options)

    monkeypatch.setattr(train.api, "train", record)
    return found


def test_a_function_builds_the_model_and_another_one_parses(
    submitted: list[dict[str, Any]], load_zoo: LoadZoo
) -> None:
    job = elasticdl.train(
        model=build, loss="mse", optimizer="sgd", data="a.recordio", dataset_fn=parse, wait=False
    )
    assert isinstance(job, FitJob)
    (options,) = submitted
    assert (options["data"], options["model_def"]) == ("a.recordio", "edl_fit_model")
    assert Path(options["init_from"]).exists()
    file = load_zoo(Path(options["model_zoo"]))
    assert file.model.name == "built"
    assert file.dataset_fn is file.edl_fit_code.dataset_fn


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"model": 3}, "model is int"),
        ({"model": lambda: None}, "returned NoneType"),
        ({"loss": None, "optimizer": None}, "built is not compiled"),
        ({"model": lambda: keras.Sequential([keras.layers.Dense(1)])}, "has no weights yet"),
        ({"dataset_fn": None}, "dataset_fn is NoneType"),
        ({"platform": "kubernetes"}, "pods of a cluster see no files"),
        ({"model_zoo": "a"}, "model_zoo cannot be combined with model"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    given: dict[str, Any], what: str, submitted: list[dict[str, Any]]
) -> None:
    options = {"model": build, "loss": "mse", "optimizer": "sgd", "dataset_fn": parse, **given}
    with pytest.raises(elasticdl.EdlError, match=what) as caught:
        elasticdl.train(data="a.recordio", **{n: v for n, v in options.items() if v is not None})
    assert caught.value.where.startswith("train(")
    assert not submitted


def test_weights_that_the_model_has_are_the_first_ones(submitted: list[dict[str, Any]]) -> None:
    model = build()
    model.compile("sgd", "mse")
    elasticdl.train(model=model, data="a.recordio", dataset_fn=parse, wait=False)
    other = build()
    other.load_weights(submitted[0]["init_from"])
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_without_the_package_train_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edl_keras.train", None)
    with pytest.raises(elasticdl.UsageError, match="needs edl-keras") as caught:
        elasticdl.train(model=build, data="a.recordio")
    assert caught.value.remedy.startswith("pip install edl-keras")
