"""Data that no job can read is refused before the job starts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import recordio
from edl.adapters import data_files
from edl_proto.errors import EdlError, ErrorCode


def check_and_return_error(*patterns: Path, form: str = "") -> EdlError:
    with pytest.raises(EdlError) as caught:
        data_files.check(map(str, patterns), form, "--data")
    assert caught.value.code == ErrorCode.DATA_UNREADABLE
    return caught.value


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "part-0"])
@pytest.mark.parametrize(
    "content", ['{"x": 1, "y": 2}\n{"x": 3, "y": 4}\n', '{"x": 1}\n', '\ufeff[\n  {\n  "x": 1}]']
)
def test_json_is_refused_with_what_to_do(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    error = check_and_return_error(tmp_path / name)
    assert "JSON" in error.what
    assert "pandas.read_json" in error.remedy
    assert ".to_parquet" in error.remedy


@pytest.mark.parametrize(
    ("content", "what", "remedy"),
    [
        (
            "version https://git-lfs.github.com/spec/v1\n",
            "pointer of Git LFS",
            "git lfs pull",
        ),
        ("\n<!DOCTYPE html>\n<p>a, b</p>\n", "a page of the web", "Download it again"),
        ("<html><p>a, b</p>\n", "a page of the web", "Download it again"),
    ],
)
def test_what_was_downloaded_in_place_of_a_table(
    tmp_path: Path, content: str, what: str, remedy: str
) -> None:
    (tmp_path / "a.csv").write_text(content)
    error = check_and_return_error(tmp_path / "a.csv")
    assert what in error.what
    assert remedy in error.remedy


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdlError, match="needs the package pyarrow") as caught:
        data_files.check_records([str(file)], "", "--data")
    assert caught.value.remedy == "pip install pyarrow"


@pytest.mark.parametrize("name", ["digits.npz", "digits.npy"])
def test_arrays_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    xs, ys = np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.arange(2)
    with (tmp_path / name).open("wb") as file:
        np.savez(file, x=xs, y=ys) if name.endswith("z") else np.save(file, xs)
    remedy = check_and_return_error(tmp_path / name).remedy
    exec(remedy.partition("in Python: ")[2], {"recordio": recordio, "xs": xs, "ys": ys})
    source = recordio.open_source(str(tmp_path / "digits.recordio"))
    first, second = map(recordio.example.decode, source.read(0, 2))
    assert first["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert second["label"].tolist() == [1]


def test_rows_and_records_are_not_mixed(tmp_path: Path) -> None:
    table, records = tmp_path / "a.csv", tmp_path / "b.recordio"
    table.write_text("x,y\n1,2\n")
    with recordio.Writer(str(records)) as writer:
        writer.write(b"one")
    for patterns in ((table, records), (records, table), (tmp_path,)):
        error = check_and_return_error(*patterns)
        assert "two kinds" in error.what
        assert {str(table), str(records)} <= set(error.where.split(" and "))
        assert f"edl data convert {table}" in error.remedy


def test_records_of_two_formats_are_the_same_to_a_model_file(tmp_path: Path) -> None:
    with recordio.Writer(str(tmp_path / "a.recordio")) as writer:
        writer.write(b"one")
    with recordio.TFRecordWriter(str(tmp_path / "b.tfrecord")) as other:
        other.write(b"two")
    data_files.check([str(tmp_path)], "", "--data")


@pytest.mark.parametrize("header", ["x,y", '"{x}",y', "[x],y", "{,y"])
def test_names_of_columns_are_not_taken_for_json(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n1,2\n")
    data_files.check([str(tmp_path / "a.csv")], "", "--data")


def test_a_file_of_a_store_that_this_machine_cannot_read_is_left_to_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, stored = str(tmp_path / "a.csv"), "s3://bucket/b"
    Path(table).write_text("x,y\n1,2\n")

    def sniff_here(file: str) -> str:
        if file == stored:
            raise recordio.UnreadableFile(f"{file}: no credentials")
        return "csv"

    monkeypatch.setattr(data_files, "expand", lambda pattern, option: [pattern])
    monkeypatch.setattr(data_files, "readable_size", lambda file, option: 8)
    monkeypatch.setattr(data_files, "sniff", sniff_here)
    data_files.check([table, stored], "", "--data")


def test_a_trained_model_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "trained_model.pb").write_bytes(b"")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(EdlError, match="--data names a trained model") as caught:
        data_files.check([str(tmp_path)], "", "--data")
    assert "--init-from" in caught.value.remedy
