"""Parameters are known before a job starts, and only where no others can exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.adapters.model_zoo import parameters_of
from edl.core.model_parameters import parameters

ZOO = Path(__file__).resolve().parents[4] / "model_zoo"
MODEL = "class M:\n    def __init__(self, units=1, *, schema=None): pass\n"


@pytest.mark.parametrize(
    ("model", "some"),
    [
        ("regressor.DNN", "hidden_units learning_rate word_buckets"),
        ("classifier.DNN", "hidden_units learning_rate n_classes"),
        ("classifier.wide_and_deep.WideAndDeep", "n_classes learning_rate linear_feature_columns"),
        ("regressor.wide_and_deep.MagicalWAD", "hidden_units learning_rate"),
        ("classifier.deepfm.DeepFM", "learning_rate n_classes"),
        ("regressor.deepfm.DeepFM", "learning_rate"),
        ("anomaly.Autoencoder", "hidden_units learning_rate"),
    ],
)
def test_those_of_the_zoo_s_models_are_known(model: str, some: str) -> None:
    found = parameters_of(ZOO, model)
    assert found is not None
    assert set(some.split()) <= found
    assert not {"hiden_units", "optimizer", "activation"} & found


@pytest.mark.parametrize(
    ("also", "known"),
    [
        ("", {"units", "schema"}),
        ("def loss(labels, predictions, delta=1): pass", {"units", "delta"}),
        ("from other import optimizer", {"units", "momentum"}),
        ("import other as o", {"momentum"}),
        ("from elsewhere import Adam", {"units"}),
        ("optimizer = Adam", None),
        ("class N(M):\n    optimizer = Adam", None),
        ("def optimizer(**settings): return Adam(**settings)", None),
        ("from other import *", None),
        ("from .near import optimizer", {"units", "decay"}),
        ("from . import near", {"units", "decay"}),
        ("from elsewhere import Adam as optimizer", None),
        ("def f():\n    loss = Adam()", {"units"}),
        ("no Python", None),
    ],
)
def test_what_a_text_hides_is_not_known(also: str, known: set[str] | None) -> None:
    texts = {
        "a.m": (f"{MODEL}\n{also}\n", "a"),
        "a.near": ("def optimizer(decay=0.9): pass\n", "a"),
        "other": ("def optimizer(momentum=0.9): pass\n", ""),
    }
    found = parameters("a.m", "M", texts.get)
    assert (found is None) == (known is None)
    assert (known or set()) <= (found or set())


@pytest.mark.parametrize(
    "model",
    [
        "class M: pass",
        "class M(Base): units = 2",
        "def M(**params): pass",
        "M = make()",
        "from other import M",
    ],
)
def test_a_model_that_may_take_anything_is_not_judged(model: str) -> None:
    texts = {"m": (model, ""), "other": ("x = 1", "")}
    assert parameters("m", "M", texts.get) is None
