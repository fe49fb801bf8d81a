"""The models that ``edl sql`` has with it, and the zoos that add to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.plugins.jobs import parameters_of, takes_parameter
from edl_proto.errors import EdlError
from edl_sql.zoos import MODELS, OWN_ZOO, find_zoo


@pytest.fixture(autouse=True)
def no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_there_without_any_other_zoo(model: str) -> None:
    zoo, source, name = find_zoo(model, "")
    assert zoo == str(OWN_ZOO)
    assert takes_parameter(source, name, "schema")
    assert "hidden_units" in (parameters_of(Path(zoo), model) or {})


def test_another_zoo_adds_models_and_may_replace_them() -> None:
    Path("mine").mkdir()
    Path("mine/net.py").write_text("class Small: pass\n")
    Path("mine/regressor.py").write_text("class DNN: pass\n")
    assert find_zoo("net.Small", "mine")[0] == "mine"
    assert find_zoo("regressor.DNN", "mine")[0] == "mine"
    assert find_zoo("classifier.DNN", "mine")[0] == str(OWN_ZOO)
    Path("mine").rename("model_zoo")
    assert find_zoo("net.Small", "")[0] == "model_zoo"


def test_a_model_that_no_zoo_has() -> None:
    with pytest.raises(EdlError, match="names no file of the model zoo") as raised:
        find_zoo("regresor.DNN", "")
    assert raised.value.remedy == "Did you mean regressor.DNN?"
