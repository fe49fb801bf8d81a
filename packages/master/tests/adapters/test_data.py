"""The data of a job, by its headers."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import recordio
from edl_master.adapters.data import DataSet, open_data
from edl_master.core.effects import Range
from edl_proto.errors import EdlError, ErrorCode


def write(path: Path, count: int, first: int = 0) -> None:
    with recordio.Writer(str(path), chunk_records=10) as writer:
        for number in range(first, first + count):
            writer.write(str(number).encode())


def open_and_return_error(pattern: str | Path, format: str = "") -> EdlError:
    with pytest.raises(EdlError) as caught:
        open_data([str(pattern)], format, "--data")
    assert caught.value.where
    assert caught.value.remedy
    return caught.value


def test_files_are_counted_and_ranges_of_them_can_be_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.recordio", 35)
    write(tmp_path / "b.recordio", 7, first=35)
    monkeypatch.chdir(tmp_path)
    data = open_data(["*.recordio"], "", "--data")
    monkeypatch.chdir("/")
    assert data.counts == (35, 7)
    assert data.records == 42
    assert data.uris == (str(tmp_path / "a.recordio"), str(tmp_path / "b.recordio"))
    (where,) = data.locate([Range(file=0, start=23, stop=31)])
    assert (where.start, where.stop, where.format) == (23, 31, "recordio")
    assert where.block_first_record == 20
    assert 0 < where.block_offset < where.end_offset <= os.path.getsize(where.uri)
    assert where.end_offset == data.locate([Range(file=0, start=30, stop=31)])[0].end_offset
    source = recordio.open_source(where.uri, format=where.format)
    hint = (where.block_first_record, where.block_offset)
    found = list(source.read(where.start, where.stop, hint=hint))
    assert found == [b"%d" % number for number in range(23, 31)]


def test_a_changed_file_is_refused_by_the_next_master(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.recordio", 35)
    described = json.loads(json.dumps(open_data([str(tmp_path)], "", "--data").describe()))
    os.utime(tmp_path / "a.recordio", (1, 1))
    open_data([str(tmp_path)], "", "--data").check_unchanged(described)
    write(tmp_path / "b.recordio", 35, first=1)
    changed = open_data([str(tmp_path)], "", "--data")
    with pytest.raises(EdlError, match=r"b\.recordio has changed") as caught:
        changed.check_unchanged(described)
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    changed.check_unchanged({})  # of an earlier version of edl
    write(tmp_path / "c.recordio", 5)
    with pytest.raises(EdlError, match=r"c\.recordio was not there") as caught:
        open_data([str(tmp_path)], "", "--data").check_unchanged(described)
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    (tmp_path / "b.recordio").unlink()
    with pytest.raises(EdlError, match=r"b\.recordio is not there any more") as caught:
        open_data([str(tmp_path)], "", "--data").check_unchanged(described)
    assert caught.value.code == ErrorCode.DATA_NOT_FOUND


def test_parts_of_a_mixed_task_lie_within_a_block_each(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 35)
    data = open_data([str(tmp_path)], "", "--data")
    parts = data.locate([Range(0, 27, 34), Range(0, 2, 4), Range(0, 8, 20)])
    assert [
        (part.start, part.stop, part.block_first_record, part.block_stop_record) for part in parts
    ] == [(27, 30, 20, 30), (30, 34, 30, 35), (2, 4, 0, 10), (8, 10, 0, 10), (10, 20, 10, 20)]
    source = recordio.open_source(parts[0].uri)
    for part in parts:
        hint = (part.block_first_record, part.block_offset)
        whole = source.read(hint[0], part.block_stop_record, hint=hint, end=part.end_offset)
        assert list(whole) == [b"%d" % n for n in range(hint[0], part.block_stop_record)]


def test_public_names_have_no_passwords(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 1)
    (file,) = open_data([str(tmp_path)], "", "--data").files
    secret = replace(file, uri="https://me:p@ss@store.test/a.recordio")
    data = DataSet([secret])
    assert data.names == ("https://store.test/a.recordio",)
    assert data.locate([Range(0, 0, 1)])[0].uri == secret.uri


def test_columns_of_csv_travel_with_every_range(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n5,6\n")
    data = open_data([str(tmp_path)], "", "--data")
    assert data.counts == (3,)
    assert [list(part.columns) for part in data.locate([Range(0, 1, 3)])] == [["x", "y"]]
    mixed = data.locate([Range(0, 2, 3), Range(0, 0, 1)])
    assert [list(part.columns) for part in mixed] == [["x", "y"], []]


def test_a_pattern_without_a_match_is_reported(tmp_path: Path) -> None:
    error = open_and_return_error(tmp_path / "*.recordio")
    assert error.code == ErrorCode.DATA_NOT_FOUND
    assert str(tmp_path) in error.what


def test_files_without_a_record_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 0)
    error = open_and_return_error(tmp_path / "a.recordio")
    assert error.code == ErrorCode.DATA_EMPTY
    assert "a.recordio" in error.where


def test_damage_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 35)
    write(tmp_path / "b.recordio", 35)
    content = (tmp_path / "b.recordio").read_bytes()
    (tmp_path / "b.recordio").write_bytes(content[:-4])
    error = open_and_return_error(tmp_path)
    assert error.code == ErrorCode.DATA_DAMAGED
    assert "b.recordio" in error.where
    assert "offset" in error.what


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.recordio").symlink_to(tmp_path / "gone")
    error = open_and_return_error(tmp_path / "a.recordio")
    assert error.code == ErrorCode.DATA_UNREADABLE
    assert "a.recordio" in error.what + error.where


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 5)
    (tmp_path / "a.recordio").chmod(0)
    assert open_and_return_error(tmp_path / "a.recordio").code == ErrorCode.DATA_UNREADABLE


def test_an_unknown_format_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "a.recordio", 5)
    assert open_and_return_error(tmp_path / "a.recordio", "arrow").code == ErrorCode.DATA_UNREADABLE


def test_parquet_without_its_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = open_and_return_error(tmp_path / "a.parquet")
    assert error.code == ErrorCode.DATA_UNREADABLE
    assert "pip install pyarrow" in error.remedy
