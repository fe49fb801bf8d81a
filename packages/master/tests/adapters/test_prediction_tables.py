"""Predictions as CSV, JSON Lines and Parquet."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
import recordio.example
from edl_master.adapters import prediction_tables
from edl_master.adapters.part_files import OutputFormat
from edl_master.adapters.prediction_columns import Rows, columns_of, shortest
from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.identifiers import HeldLease, TaskKey, TaskType, Token
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError

Features = Mapping[str, Any]


def write_rows(
    path: Path, rows: Sequence[Features], keep: tuple[str, ...] = (), *, typed: bool = False
) -> Path:
    """Rows as the parts hold them, in a file of the format that its name tells."""
    records = [recordio.example.encode(row) for row in rows]
    half = len(records) // 2
    blocks = [Rows(records[:half]), Rows(records[half:])]
    columns = columns_of(blocks, keep, typed=typed)
    form = path.suffix.removeprefix(".")
    assert prediction_tables.write(form, blocks, columns, path) == len(rows)
    return path


def cells(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def objects(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


ROWS = (
    {"prediction": [0.1, 2.0], "name": "Ada, Countess", "id": 7, "tags": ["a", "b"]},
    {"prediction": [1e-7, -3.0], "name": 'say "hi"\n', "id": 8, "tags": ["c"]},
    {"prediction": [float("nan"), 1.0], "id": 9, "name": "é"},
)


def test_csv_has_a_column_for_each_value(tmp_path: Path) -> None:
    found = cells(write_rows(tmp_path / "a.csv", ROWS, ("name", "id")))
    assert found == [
        ["name", "id", "prediction_0", "prediction_1", "tags"],
        ["Ada, Countess", "7", "0.1", "2.0", '["a", "b"]'],
        ['say "hi"\n', "8", "1e-07", "-3.0", '["c"]'],
        ["é", "9", "nan", "1.0", "[]"],
    ]


def test_json_lines_have_lists(tmp_path: Path) -> None:
    found = objects(write_rows(tmp_path / "a.jsonl", ROWS, ("id",)))
    assert list(found[0]) == ["id", "name", "prediction", "tags"]
    assert found[0]["prediction"] == [0.1, 2.0]
    assert found[1]["tags"] == ["c"]
    assert found[2] == {"id": 9, "name": "é", "prediction": [None, 1.0], "tags": None}


def test_parquet_has_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(write_rows(tmp_path / "a.parquet", ROWS, ("id",)))
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("id", "int64"),
        ("name", "string"),
        ("prediction", "list<element: float>"),
        ("tags", "list<element: string>"),
    ]
    assert table["id"].to_pylist() == [7, 8, 9]
    assert table["tags"].to_pylist() == [["a", "b"], ["c"], None]


def test_bytes_that_are_no_text_are_base64_in_texts(tmp_path: Path) -> None:
    rows = ({"image": b"\xff\xd8", "prediction": 1.5}, {"image": b"text", "prediction": 2.5})
    assert cells(write_rows(tmp_path / "a.csv", rows))[1:] == [["/9g=", "1.5"], ["dGV4dA==", "2.5"]]
    assert objects(write_rows(tmp_path / "a.jsonl", rows))[0] == {
        "image": "/9g=",
        "prediction": 1.5,
    }


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "-2", ""], [1, -2, None]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["007", "1"], ["007", "1"]),
        (["1", "x"], ["1", "x"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["", ""], ["", ""]),
    ],
)
def test_texts_of_csv_that_are_all_numbers_become_numbers(
    texts: list[str], values: list[Any], tmp_path: Path
) -> None:
    rows = [{"id": text.encode(), "prediction": 1} for text in texts]
    found = objects(write_rows(tmp_path / "a.jsonl", rows, ("id",), typed=True))
    assert [row["id"] for row in found] == values
    # Those of a tf.Example are texts because the user said so.
    found = objects(write_rows(tmp_path / "b.jsonl", rows, ("id",)))
    assert [row["id"] for row in found] == texts


def test_columns_that_would_be_two_of_one_name_hold_lists(tmp_path: Path) -> None:
    found = cells(write_rows(tmp_path / "a.csv", [{"x": [1, 2], "x_0": 3}]))
    assert found == [["x", "x_0"], ["[1, 2]", "3"]]


def test_all_files_of_an_output_have_the_same_columns(tmp_path: Path) -> None:
    """So does that of a data file without records; row groups and parts keep the order."""
    partition = TaskPartition((25, 0, 12), 10)
    form = OutputFormat("jsonl", keep=("id",))
    output = tmp_path / "out"
    uris = ("/in/a.csv", "/in/b.csv", "/in/c.csv")
    made = PredictionOutput(tmp_path / "parts", "job", str(output), uris, partition, "ab12", form)
    made.prepare()
    for number in range(partition.count):
        lease = HeldLease(TaskKey(TaskType.PREDICTION, 0, number), Token(1))
        records = partition.range(number)
        with recordio.Writer(made.part_of(lease)) as writer:
            for record in range(records.start, records.stop):
                features = {"id": record, "prediction": [0.5] * (1 + records.file)}
                writer.write(recordio.example.encode(features))
        with made.completing(lease, records.stop - records.start):
            pass
    made.finish()
    names = ["a.csv.jsonl", "b.csv.jsonl", "c.csv.jsonl"]
    assert sorted(path.name for path in output.iterdir()) == names
    found = [objects(output / name) for name in names]
    assert [[row["id"] for row in rows] for rows in found] == [[*range(25)], [], [*range(12)]]
    assert found[0][0]["prediction"] == [0.5], "a list in one file is a list in all"


def test_parquet_has_a_row_group_for_many_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(prediction_tables, "_GROUP_VALUES", 10)
    path = write_rows(tmp_path / "a.parquet", [{"prediction": n} for n in range(25)])
    file = parquet.ParquetFile(path)
    assert file.metadata.num_row_groups == 3
    assert file.read()["prediction"].to_pylist() == list(range(25))


def test_parquet_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    prediction_tables.check_installed("csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(EdlError, match="needs the package pyarrow"):
        prediction_tables.check_installed("parquet")


def test_floats_are_as_short_as_their_texts() -> None:
    random = np.random.default_rng(1)
    bits = random.integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    powers = [
        np.float32(f"{digit}e{power}") for digit in (1, 9.999999, 5) for power in range(-44, 38)
    ]
    others = np.array([*powers, 0.0, -0.0, 0.1, 1 / 3, 16777216.0], np.float32)
    values = np.concatenate([bits, random.random(20_000, np.float32), others])
    found = shortest(values)
    for value, short in zip(values, found.tolist(), strict=True):
        if np.isfinite(value):
            assert str(short) == str(float(str(value)))
    assert np.array_equal(found.astype(np.float32), values, equal_nan=True)
