"""Rows with other numbers of cells than the header are found before a job starts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from edl.adapters import table_rows
from edl_proto.errors import EdlError, ErrorCode


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("row", "cells"), [("1,2,0.5,1", 4), ("1,2", 2), ('"a\nb",2,3,4', 4)])
def test_a_row_that_differs_has_its_line(tmp_path: Path, row: str, cells: int) -> None:
    file = write(tmp_path / "t.csv", f"a,b,c\n1,2,3\n\n{row}\n1,2,3\n")
    with pytest.raises(EdlError) as caught:
        table_rows.check([file], "", "--data")
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    assert f"has {cells} cells, and the header 3" in caught.value.what
    assert caught.value.where == f"{file}:{4 + row.count(chr(10))}"


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"1,5",2\n"x\ny",3\n',
        "a;b\n1,5;2\n3;4\n",  # another delimiter
        "a,b\n1,2\n\n",
    ],
)
def test_tables_that_are_right(tmp_path: Path, text: str) -> None:
    table_rows.check([write(tmp_path / "t.csv", text)], "", "--data")


def test_what_is_too_large_is_left_to_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "_MAX_BYTES", 3)
    table_rows.check([write(tmp_path / "t.csv", "a,b\n1,2,3\n")], "", "--data")


@pytest.mark.parametrize("row", [",,", " , ,"])
def test_a_row_without_any_value_is_refused_but_for_predictions(tmp_path: Path, row: str) -> None:
    file = write(tmp_path / "t.csv", f"a,b,c\n1,,\n{row}\n")
    with pytest.raises(EdlError, match="the row has no value") as caught:
        table_rows.check([file], "", "--data")
    assert caught.value.where == f"{file}:3"
    table_rows.check([file], "", "--data", may_be_empty=True)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])
def test_rows_of_a_table_that_is_gzip(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    table_rows.check([str(path)], "", "--data")
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3\n"))
    with pytest.raises(EdlError, match="the row has 1 cells"):
        table_rows.check([str(path)], "", "--data")
