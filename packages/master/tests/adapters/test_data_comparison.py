"""The data of a job has the columns of the model that its training begins with, in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edl_master.adapters.data import DataSet, open_data
from edl_master.adapters.data_comparison import compare_data
from edl_master.core.settings import JobType
from edl_proto.v1 import model_pb2
from edl_runtime.model.trained_model import TRAINED_MODEL


def write_data(path: Path, header: str) -> DataSet:
    path.write_text(f"{header}\n" + "0.5,0.25,1\n" * 4)
    return open_data([str(path)], "", "--data")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    trained = compare_data(JobType.TRAIN, write_data(tmp_path / "t.csv", "a,b,label"), None, "")
    assert trained.description is not None
    content = model_pb2.TrainedModel(data=json.dumps(trained.description.as_json()).encode())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / TRAINED_MODEL).write_bytes(content.SerializeToString())
    return folder


def test_columns_have_the_order_of_the_first_values(tmp_path: Path, model: Path) -> None:
    swapped = write_data(tmp_path / "swapped.csv", "b,a,label")
    alone = compare_data(JobType.TRAIN, swapped, None, "")
    assert alone.columns == ("b", "a", "label")
    continued = compare_data(JobType.TRAIN, swapped, None, "", str(model))
    assert continued.columns == ("a", "b", "label")
    (note,) = continued.notes
    assert "read in the order of the model that the training begins with" in note.message


def test_other_columns_are_named_and_stay(tmp_path: Path, model: Path) -> None:
    other = write_data(tmp_path / "other.csv", "c,a,label")
    compared = compare_data(JobType.TRAIN, other, None, "", str(model))
    assert compared.columns == ("c", "a", "label")
    (note,) = compared.notes
    assert "only that has 'b', and only this has 'c'" in note.message


def test_a_file_of_values_says_nothing_of_columns(tmp_path: Path) -> None:
    (tmp_path / "first.keras").write_bytes(b"PK")
    data = write_data(tmp_path / "data.csv", "b,a,label")
    compared = compare_data(JobType.TRAIN, data, None, "", str(tmp_path / "first.keras"))
    assert compared.columns == ("b", "a", "label")
    assert not compared.notes
