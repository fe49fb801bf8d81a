"""``elasticdl.job``: whose ``fit`` becomes a job, and with which options."""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np
import pytest

import elasticdl
from edl_keras import job as job_module

X, Y = np.zeros((4, 2)), np.zeros(4)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(job_module, "fit", lambda model, **given: found.append(given))
    return found


def make_model() -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_fit_becomes_a_job_with_the_arguments_that_were_given(calls: list[dict[str, Any]]) -> None:
    @elasticdl.job(num_workers=2, name="twice")
    def main(rows: Any) -> str:
        model = make_model()
        model.fit(rows, Y, 16, epochs=3)
        model.fit(rows, Y)
        return "done"

    assert main(X) == "done"
    first, second = calls
    assert {**first, "x": 0, "y": 0} == {
        "x": 0,
        "y": 0,
        "batch_size": 16,
        "epochs": 3,
        "num_workers": 2,
        "name": "twice",
    }
    assert second["name"] == "twice-2"
    make_model().fit(X, Y, verbose=0)
    assert len(calls) == 2, "outside of the function, fit is that of Keras"


def test_it_needs_no_parentheses_and_ends_with_an_error(calls: list[dict[str, Any]]) -> None:
    @elasticdl.job
    def main() -> None:
        make_model().fit(X, Y)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        main()
    assert "fit" not in vars(keras.Model)
    assert main.__name__ == "main"


def test_other_threads_train_as_ever(calls: list[dict[str, Any]]) -> None:
    @elasticdl.job
    def main() -> None:
        thread = threading.Thread(target=lambda: make_model().fit(X, Y, verbose=0), name="other")
        thread.start()
        thread.join()

    main()
    assert calls == []
