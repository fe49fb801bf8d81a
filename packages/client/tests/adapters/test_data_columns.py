"""Data whose columns are not those of the training is refused before a job exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recordio
import recordio.example
from edl.adapters import data_columns
from edl.core.options import Verb
from edl.core.submission import Submission
from edl_proto.errors import EdlError
from edl_proto.v1 import model_pb2


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text("a,b,label\n1,2,0\n")
    (tmp_path / "other.csv").write_text("label,more,b,a\n1,2,3,4\n")
    (tmp_path / "lacks.csv").write_text("a,B,label\n1,2,0\n")
    with recordio.Writer(str(tmp_path / "x.recordio")) as writer:
        writer.write(recordio.example.encode({"a": 1.0}))
    with recordio.Writer(str(tmp_path / "lines.recordio")) as writer:
        writer.write(b"1,2,0")
    return tmp_path


def check_validation(data: Path, name: str, validation: str) -> None:
    files = {"data": (str(data / name),), "validation_data": (str(data / validation),)}
    data_columns.check(Submission(verb=Verb.TRAIN, output="o", **files))


def test_validation_data_has_the_columns_of_the_training_data(data: Path) -> None:
    check_validation(data, "table.csv", "other.csv")
    check_validation(data, "table.csv", "lines.recordio")
    with pytest.raises(
        EdlError, match=r"lacks\.csv: it lacks column 'b' of the training data"
    ) as e:
        check_validation(data, "table.csv", "lacks.csv")
    assert "It has column 'B' instead: rename" in e.value.remedy
    for files in (("table.csv", "x.recordio"), ("x.recordio", "table.csv")):
        with pytest.raises(EdlError, match=r"its records are .* of the training data are"):
            check_validation(data, *files)


def test_an_evaluation_needs_the_columns_of_the_training(data: Path) -> None:
    def evaluate(name: str, **described: object) -> None:
        content = json.dumps(described).encode() if described else b""
        model = model_pb2.TrainedModel(model_def="m", data=content)
        (data / "trained_model.pb").write_bytes(model.SerializeToString())
        files = (str(data / name),)
        data_columns.check(
            Submission(verb=Verb.EVALUATE, output="", data=files, trained_model=str(data))
        )

    fields = [["a", "numbers", -1, True], ["b", "numbers", -1, True]]
    evaluate("other.csv", form="table", fields=fields)
    evaluate("x.recordio", form="examples", fields=fields)
    evaluate("lacks.csv")
    with pytest.raises(EdlError, match="lacks column 'b'"):
        evaluate("lacks.csv", form="table", fields=fields)
    with pytest.raises(EdlError, match="are rows of CSV"):
        evaluate("table.csv", form="examples", fields=fields)
