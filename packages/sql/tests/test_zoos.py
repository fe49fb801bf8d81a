"""The models that ``edl sql`` has with it, and the zoos that add to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.plugins.jobs import parameters_of, takes_parameter
from edl_proto.errors import EdlError
from edl_sql.zoos import ALIASES, MODELS, OWN_ZOO, find_model


@pytest.fixture(autouse=True)
def no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("model", [*MODELS, *ALIASES, "sqlflow_models.DNNClassifier"])
def test_a_model_is_there_without_any_other_zoo(model: str) -> None:
    found = find_model(model, {}, "")
    assert found.zoo == str(OWN_ZOO)
    assert takes_parameter(found.source, found.name, "schema")
    known = parameters_of(OWN_ZOO, found.model_def) or {}
    is_tree = found.model_def.startswith("trees.")
    assert ("num_boost_round" in known, "hidden_units" in known) == (is_tree, not is_tree)


def test_another_zoo_adds_models_and_may_replace_them() -> None:
    Path("mine").mkdir()
    Path("mine/net.py").write_text("class Small: pass\n")
    Path("mine/regressor.py").write_text("class DNN: pass\n")
    assert find_model("net.Small", {}, "mine").zoo == "mine"
    assert find_model("regressor.DNN", {}, "mine").zoo == "mine"
    assert find_model("classifier.DNN", {}, "mine").zoo == str(OWN_ZOO)
    Path("mine").rename("model_zoo")
    assert find_model("net.Small", {}, "").zoo == "model_zoo"


def test_a_model_that_no_zoo_has() -> None:
    with pytest.raises(EdlError, match=r"there is no model regresor\.DNN") as raised:
        find_model("regresor.DNN", {}, "")
    assert raised.value.remedy == "Did you mean regressor.DNN?"


def test_names_of_sqlflow() -> None:
    found = find_model("LinearRegressor", {"columns": ["a"]}, "")
    assert (found.model_def, found.params) == (
        "regressor.DNN",
        {"hidden_units": [], "columns": ["a"]},
    )
    wide = find_model("DNNLinearCombinedClassifier", {"dnn_hidden_units": [8]}, "")
    assert wide.params == {"hidden_units": [8]}
    with pytest.raises(EdlError) as raised:
        find_model("xgboost.dart", {}, "")
    assert raised.value.remedy == "The nearest model is xgboost.gbtree."


@pytest.mark.parametrize(
    ("objective", "kind"),
    [
        ({}, "Regressor"),
        ({"objective": "reg:squarederror"}, "Regressor"),
        ({"objective": "binary:logistic"}, "Classifier"),
        ({"objective": "multi:softmax"}, "Classifier"),
    ],
)
def test_the_objective_says_which_trees_xgboost_means(
    objective: dict[str, object], kind: str
) -> None:
    found = find_model("xgboost.gbtree", {**objective, "lambda": 2, "n_estimators": 9}, "")
    assert found.model_def == f"trees.BoostedTrees{kind}"
    assert found.params == {**objective, "reg_lambda": 2, "num_boost_round": 9}
