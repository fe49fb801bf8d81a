"""The name of a file is refused for a trained model, which is a folder."""

from __future__ import annotations

import pytest

from edl.core.options import Given, Verb
from edl.core.problem import Problem
from edl.core.submission import Submission, build

COMMON = {"data": "train.csv"}
OPTIONS = {
    Verb.TRAIN: {**COMMON, "model_zoo": "zoo", "model_def": "mine"},
    Verb.PREDICT: {**COMMON, "trained_model": "model"},
}


def make(verb: Verb, output: str) -> Submission:
    values = {**OPTIONS[verb], "output": output}
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(verb, given, cwd="/work", environ={})


@pytest.mark.parametrize(
    ("output", "folder"),
    [
        ("model.keras", "such as model."),
        ("out/m.weights.h5", "such as out/m."),
        ("s3://bucket/m.H5", "such as s3://bucket/m."),
        ("m.hdf5/", "such as m."),
    ],
)
def test_the_name_of_a_file_for_a_trained_model(output: str, folder: str) -> None:
    with pytest.raises(Problem, match="a trained model is a folder") as refused:
        make(Verb.TRAIN, output)
    assert refused.value.code == "USAGE"
    assert folder in refused.value.remedy
    assert make(Verb.PREDICT, output).output, "predictions may be a file"


@pytest.mark.parametrize("output", ["keras", "models/v1.5", "my.keras.models"])
def test_other_names(output: str) -> None:
    assert make(Verb.TRAIN, output).output == f"/work/{output}"
