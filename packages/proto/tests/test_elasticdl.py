"""The import name of the documents, without the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

import elasticdl
from elasticdl.python.common.constants import Mode


def test_modes_are_those_of_the_documents() -> None:
    assert {mode.name: mode.value for mode in Mode} == {
        "TRAINING": 1,
        "EVALUATION": 2,
        "PREDICTION": 3,
    }


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("train", Mode.TRAINING),
        ("TRAINING", Mode.TRAINING),
        ("Mode.EVALUATION", Mode.EVALUATION),
        ("eval", Mode.EVALUATION),
        ("infer", Mode.PREDICTION),
    ],
)
def test_a_mode_equals_its_text(text: str, mode: Mode) -> None:
    assert [each for each in Mode if each == text] == [mode]
    assert [each for each in Mode if text != each] == [each for each in Mode if each is not mode]
    assert mode in ("prediction", "train", "eval")


def test_a_mode_refuses_a_text_that_it_never_is() -> None:
    with pytest.raises(ValueError, match=r"compared with 'learn'.* write mode == Mode.TRAINING"):
        _ = Mode.TRAINING == "learn"
    assert {Mode.TRAINING: "a"}[Mode(1)] == "a"
    assert Mode.TRAINING == 1
    assert Mode.TRAINING not in (None, Mode.EVALUATION, 2)


def test_spec_names_what_is_missing() -> None:
    class Half(elasticdl.ElasticDLSpec):
        def create_model(self) -> object:
            return object()

    with pytest.raises(TypeError, match="create_loss"):
        Half()


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="fitted"):
        _ = elasticdl.fitted


def test_importing_it_is_light_and_train_says_what_it_needs() -> None:
    code = """
import sys
sys.modules["edl"] = None
import elasticdl
heavy = [n for n in ("tensorflow", "grpc", "numpy", "google.protobuf") if n in sys.modules]
assert not heavy, heavy
for use in (lambda: elasticdl.train, lambda: elasticdl.load_ipython_extension(None)):
    try:
        use()
    except (AttributeError, ModuleNotFoundError) as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.count("pip install edl-client") == 2


def test_fit_says_which_package_it_needs() -> None:
    code = """
import sys
sys.modules["edl_keras"] = None
import elasticdl
try:
    elasticdl.fit
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert "elasticdl.fit needs edl-keras" in done.stdout
    assert "pip install edl-keras" in done.stdout
