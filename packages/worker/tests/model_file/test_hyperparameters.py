"""What ``build_model(hp)`` gets, and asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edl_proto.errors import EdlError
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.hyperparameters import HyperParameters


def ask(hp: Any) -> dict[str, Any]:
    with hp.name_scope("block"):
        units = hp.Int("units", 16, 64, step=16)
    kind = hp.Choice("kind", ["wide", "deep"], default="deep")
    with hp.conditional_scope("kind", ["deep"]):
        depth = hp.Int("depth", 1, 3, default=2)
    width = hp.Float("width", 0.5, 2.0, parent_name="kind", parent_values=["wide"])
    return {"units": units, "kind": kind, "depth": depth, "width": width}


def test_defaults_are_those_of_keras_tuner() -> None:
    hp = HyperParameters()
    assert ask(hp) == {"units": 16, "kind": "deep", "depth": 2, "width": None}
    assert list(hp.asked) == ["block/units", "kind", "depth", "width"]
    assert hp.asked["block/units"] | {"step": 16, "low": 16} == hp.asked["block/units"]
    assert hp.asked["width"]["conditions"] == [["kind", ["wide"]]]
    assert hp.get("kind") == "deep"
    assert "depth" in hp
    assert "width" not in hp
    with pytest.raises(KeyError):
        hp.get("other")


def test_given_values_replace_defaults_where_their_condition_holds() -> None:
    hp = HyperParameters({"block/units": 48, "kind": "wide", "depth": 3, "width": 1.5})
    assert ask(hp) == {"units": 48, "kind": "wide", "depth": None, "width": 1.5}


def test_steps_of_a_logarithmic_range_multiply() -> None:
    hp = HyperParameters()
    assert hp.Int("units", 8, 70, step=2, sampling="log") == 8
    assert hp.asked["units"]["values"] == [8, 16, 32, 64]
    assert hp.Float("rate", 0.001, 0.1, sampling="log") == 0.001
    assert hp.asked["rate"]["log"]
    assert hp.Boolean("flag") is False
    assert hp.Fixed("size", 3) == 3


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda hp: hp.Int("a", 3, 1), "is empty"),
        (lambda hp: hp.Float("a", 0, 1, sampling="log"), "begins at 0 or below"),
        (lambda hp: hp.Choice("a", []), "has no values"),
    ],
)
def test_impossible_ranges_are_errors(call: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        call(HyperParameters())
    with pytest.raises(TypeError, match="defualt"):
        HyperParameters().Int("a", 1, 2, defualt=1)


def call(function: Any, params: dict[str, Any]) -> Any:
    definition = Definition("model", "build_model", function)
    optimizer = Definition("optimizer", "optimizer", lambda rate=1: rate)
    caller = DefinitionCaller(Path("/zoo"), params, None, [definition, optimizer])
    return caller.call(definition)


def test_a_model_function_gets_values_by_name() -> None:
    def build_model(hp: HyperParameters, size: int = 1) -> Any:
        return hp.Int("units", 1, 9), hp.Int("layers", 1, 9), size

    assert call(build_model, {}) == (1, 1, 1)
    params = {"units": 5, "size": 2, "rate": 7, "hp": {"layers": 3, "unused": 1}}
    assert call(build_model, params) == (5, 3, 2)
    with pytest.raises(EdlError, match="nothing in the model file takes the parameter unit") as it:
        call(build_model, {"unit": 5})
    assert "units" in it.value.remedy


def test_a_parameter_with_a_default_is_an_ordinary_one() -> None:
    assert call(lambda hp=3: hp, {}) == 3
    assert call(lambda hp=3: hp, {"hp": 4}) == 4
