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
    assert set(some.split()) <= set(found)
    assert not {"hiden_units", "optimizer", "activation"} & set(found)


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
    assert (known or set()) <= set(found or ())


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


@pytest.mark.parametrize(
    ("declared", "taken", "refused", "expected"),
    [
        ("x=0.1", [1, 0.5, True, None, [1, 2]], ["abc", {"a": 1}], "a number"),
        ("x=(3, 3)", [[1], 5, None], ["ten", {}], "a list"),
        ("x='same'", [5, "valid", [1]], [], ""),
        ("x=None", [5, "a", [1]], [], ""),
        ("x", [5, "a", [1]], [], ""),
        ("x=make()", [5, "a", [1]], [], ""),
        ("x: int", [1, True], ["1", 1.5, None, [1]], "an integer"),
        ("x: float = 1", [1, 1.5], ["1", None, [1]], "a number"),
        ("x: str", ["1"], [1, None, ["a"]], "a text"),
        ("x: bool", [True], [1, "true", None], "true or false"),
        ("*, x: int | None = None", [1, None], ["1", 1.5], "an integer or null"),
        ("x: Optional[float]", [1, None], ["1"], "a number or null"),
        ("x: Sequence[int] = (1, 2)", [[1], [], (2, 3)], [5, [1, "a"], ["ten"], "ten"], "integers"),
        ("x: tuple[float, ...]", [[1.5, 2]], [1.5, ["a"]], "a list of numbers"),
        ("x: tuple[int, str]", [[1, "a"]], [1], "a list"),
        ("x: collections.abc.Sequence", [[1]], [1], "Sequence"),
        ("x: Mapping[str, int]", [{"a": 1}], [1, [1]], "Mapping[str, int]"),
        ("x: tf.Tensor", [1, "a", [1]], [], ""),
        ("x: 'Path'", [1, "a"], [], ""),
    ],
)
def test_values_of_other_types_are_known(
    declared: str, taken: list[object], refused: list[object], expected: str
) -> None:
    found = parameters("m", "M", {"m": (f"def M({declared}): pass", "")}.get)
    assert found is not None
    (parameter,) = found["x"]
    assert [value for value in taken if not parameter.takes(value)] == []
    assert [value for value in refused if parameter.takes(value)] == []
    assert expected in parameter.expected


def test_what_one_function_of_several_takes_is_not_refused() -> None:
    text = "def M(rate=0.1): pass\ndef optimizer(rate: str = 'slow'): pass\n"
    found = parameters("m", "M", {"m": (text, "")}.get)
    assert found is not None
    assert [each.takes("fast") for each in found["rate"]] == [False, True]


@pytest.mark.parametrize(
    ("text", "name", "known"),
    [
        ("model = keras.Model(x, y)\nloss = 'mse'\ndef optimizer(lr=0.1): pass", "", {"lr"}),
        ("net = keras.Sequential([])\nmetrics = ['mae']\ndef optimizer(lr=1): pass", "net", {"lr"}),
        ("model = keras.Model(x, y)\nloss = keras.losses.Huber(2.0)", "", set()),
        ("def build_model(units=8): pass", "", {"units"}),
        ("class Net(keras.Model):\n    pass", "", None),
        ("class Net(keras.Model):\n    def __init__(self, **all): pass", "", None),
        ("from elsewhere import net", "net", None),
        ("model = partial(Net)", "model", None),
    ],
)
def test_a_module_and_a_variable_are_models_too(text: str, name: str, known: set[str]) -> None:
    found = parameters("m", name, {"m": (text, "")}.get)
    assert (None if found is None else set(found)) == known
