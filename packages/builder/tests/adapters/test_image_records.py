"""The builder's own record of its images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edl_builder.adapters.image_records import ImageRecords

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def test_a_record_is_of_one_key_in_one_repository(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path / "images")
    records.add("r.com/a", "k", DIGEST)
    assert records.find("r.com/a", "k") == DIGEST
    assert records.find("r.com/b", "k") is None
    assert records.find("r.com/a", "l") is None
    records.add("r.com/a", "k", OTHER)
    assert ImageRecords(tmp_path / "images").find("r.com/a", "k") == OTHER


def test_a_record_in_the_place_of_another_is_none(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    records.add("r.com/a", "k", DIGEST)
    (first,) = tmp_path.iterdir()
    records.add("r.com/b", "k", OTHER)
    assert (records.find("r.com/a", "k"), records.find("r.com/b", "k")) == (DIGEST, OTHER)
    (second,) = set(tmp_path.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert records.find("r.com/b", "k") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"repository": "r.com/a"}', "\0" * 100])
def test_a_damaged_record_is_none(tmp_path: Path, content: str) -> None:
    records = ImageRecords(tmp_path)
    records.add("r.com/a", "k", DIGEST)
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    assert records.find("r.com/a", "k") is None
    records.add("r.com/a", "k", "no digest")
    assert records.find("r.com/a", "k") is None


def test_those_used_last_are_kept(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path)
    for number in range(5):
        records.add("r.com/a", str(number), DIGEST)
        (newest,) = (path for path in tmp_path.iterdir() if path.stat().st_mtime > 10_000)
        os.utime(newest, (number, number))
    assert records.find("r.com/a", "0") == DIGEST
    records = ImageRecords(tmp_path, most=2)
    assert [number for number in range(5) if records.find("r.com/a", str(number))] == [0, 4]


def test_records_are_kept_few_while_the_builder_runs(tmp_path: Path) -> None:
    records = ImageRecords(tmp_path, most=20)
    for number in range(100):
        records.add("r.com/a", str(number), DIGEST)
        assert len(list(tmp_path.iterdir())) <= 22
