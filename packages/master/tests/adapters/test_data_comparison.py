"""The data of a job has the columns and the labels of its model, in the model's order."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

import recordio
import recordio.example
from edl_master.adapters import data_ranges
from edl_master.adapters.class_numbers import read_class_numbers
from edl_master.adapters.data import DataSet, open_data
from edl_master.adapters.data_comparison import compare_data
from edl_master.adapters.data_ranges import measure_fields
from edl_master.core.effects import Severity
from edl_master.core.settings import JobType
from edl_proto.errors import EdlError
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


def write_incomes(path: Path, scale: float, *, rows: int = 300) -> DataSet:
    """Write a table that is sorted by income, as much data is."""
    lines = [f"{at},{(20_000 + at * 200.25) * scale:.2f},{at % 3}" for at in range(rows)]
    path.write_text("\n".join(["row,income,label", *lines, ""]))
    return open_data([str(path)], "", "--data")


def test_another_unit_than_in_the_training_data_is_named(tmp_path: Path) -> None:
    data = write_incomes(tmp_path / "train.csv", 1)
    other = write_incomes(tmp_path / "other.csv", 1000)
    part = write_incomes(tmp_path / "part.csv", 1, rows=20)
    trained = compare_data(JobType.TRAIN, data, part, "")
    assert not trained.notes
    (note,) = compare_data(JobType.TRAIN, data, other, "").notes
    folder = tmp_path / "model"
    folder.mkdir()
    content = model_pb2.TrainedModel(data=trained.content).SerializeToString()
    (folder / TRAINED_MODEL).write_bytes(content)
    for type_ in (JobType.EVALUATE, JobType.PREDICT):
        assert not compare_data(type_, part, None, str(folder)).notes
        assert compare_data(type_, other, None, str(folder)).notes == (note,)
    assert compare_data(JobType.TRAIN, other, None, "", str(folder)).notes
    assert note.severity is Severity.WARNING
    assert note.message == (
        f"{tmp_path}/other.csv: the column 'income' has 2e+07 to 7.98748e+07, in the training "
        "data 20,000 to 79,874.8: are the units the same?"
    )


def test_features_of_records_are_measured_in_all_files(tmp_path: Path) -> None:
    for number in range(3):
        with recordio.Writer(str(tmp_path / f"{number}.recordio")) as writer:
            for at in range(40):
                example = {"x": [at / 7.0, 100.0 * number], "name": b"a", "label": [at % 2]}
                writer.write(recordio.example.encode(example))
    measured = measure_fields(open_data([str(tmp_path)], "", "--data"))
    assert (measured["x"].low, measured["x"].high) == (0.0, 200.0)
    assert measured["label"].high == 1.0
    assert "name" not in measured


def test_of_sorted_data_no_beginning_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_incomes(tmp_path / "train.csv", 1)
    monkeypatch.setattr(data_ranges, "_MAX_READ", 100)
    assert measure_fields(data) == {}
    monkeypatch.setattr(data_ranges, "_MAX_READ", 1000)
    monkeypatch.setattr(data_ranges, "_MAX_BYTES", 100)
    assert measure_fields(data) == {}


def write_labels(folder: Path, **numbers: int) -> DataSet:
    folder.mkdir(parents=True)
    record = recordio.example.encode({"x": [0.5], "label": [0]})
    with recordio.Writer(str(folder / "part-00000.recordio")) as writer:
        writer.write(record)
    (folder / "labels.json").write_text(json.dumps(numbers))
    return open_data([str(folder)], "", "--data")


def test_validation_data_numbers_labels_as_the_training_data_does(tmp_path: Path) -> None:
    data = write_labels(tmp_path / "train", cat=0, dog=1)
    fewer = write_labels(tmp_path / "fewer", dog=1)
    other = write_labels(tmp_path / "other", dog=0)
    compared = compare_data(JobType.TRAIN, data, fewer, "")
    with pytest.raises(EdlError) as caught:
        compare_data(JobType.TRAIN, data, other, "")
    assert "the label 'dog' is 0, in the training data 1" in caught.value.what
    assert "--labels" in caught.value.remedy

    folder = tmp_path / "model"
    folder.mkdir()
    content = model_pb2.TrainedModel(data=compared.content)
    (folder / TRAINED_MODEL).write_bytes(content.SerializeToString())
    compare_data(JobType.EVALUATE, fewer, None, str(folder))
    compare_data(JobType.PREDICT, other, None, str(folder))  # which has no labels
    with pytest.raises(EdlError):
        compare_data(JobType.EVALUATE, other, None, str(folder))


def test_only_numbers_of_labels_are_taken_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "split" / "test").mkdir(parents=True)
    record = str(tmp_path / "split" / "test" / "a.recordio")
    labels = tmp_path / "split" / "labels.json"
    for content, found in (
        ('{"b": 1, "a": 0}', (("a", 0), ("b", 1))),
        ('{"0": "cat"}', ()),
        ("[1]", ()),
        ("{", ()),
        ("", ()),
    ):
        labels.write_text(content)
        assert read_class_numbers(record) == found
    labels.unlink()
    assert read_class_numbers(record) == ()
    (tmp_path / "split" / "test" / "a.labels.json").write_text('{"c": 2}')
    assert read_class_numbers(record) == (("c", 2),)


@pytest.mark.parametrize(
    ("record", "labels"),
    [
        ("data/part-00000.recordio", "data/labels.json"),
        ("split/train/part-00001.recordio", "split/labels.json"),
        ("one.recordio", "one.labels.json"),
    ],
)
def test_numbers_of_labels_of_objects_lie_next_to_them_in_the_store(
    record: str, labels: str, tmp_path: Path
) -> None:
    root = f"memory://{tmp_path.name}"
    system, _ = fsspec.core.url_to_fs(root)
    system.pipe_file(f"{root}/{labels}", b'{"b": 1, "a": 0}')
    assert read_class_numbers(f"{root}/{record}") == (("a", 0), ("b", 1))
    assert read_class_numbers(f"{root}/elsewhere/{record}") == ()
    assert read_class_numbers("nowhere://bucket/a.recordio") == ()
