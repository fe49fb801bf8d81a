"""edl data convert on tables that would make other records than people expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted_records import Call, commands


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


@pytest.mark.parametrize(
    ("label", "odd", "remedy"),
    [
        ("{},5", "", "Write decimal points instead of commas"),
        ("1 {:03},50", "", "Write plain numbers"),
        ("{}.5", "unknown", "Leave these rows out"),
    ],
)
def test_labels_of_numbers_are_no_classes(
    edl: Call, tmp_path: Path, label: str, odd: str, remedy: str
) -> None:
    labels = [odd or label.format(30), *map(label.format, range(30))]
    rows = "".join(f"{number};{text}\n" for number, text in enumerate(labels))
    (tmp_path / "t.csv").write_text(f"age;price\n{rows}")
    done = edl("data", "convert", "t.csv", "--to", "out", "--label", "price", code=3)
    assert "would become 31 classes" in done.err
    assert f"{remedy}" in done.err
    assert "t.csv:" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_a_row_that_lacks_a_cell_is_no_text(edl: Call, tmp_path: Path, sign: str) -> None:
    rows = ["a,b,c", "1,2,3", "4,5", "6,7,8", "9,10,11"]
    (tmp_path / "t.csv").write_text("\n".join(rows).replace(",", sign))
    done = edl("data", "convert", "t.csv", "--to", "out", code=3)
    assert "the row has 2 cells, the header 3" in done.err
    assert "t.csv:3" in done.err


@pytest.mark.parametrize(("name", "remedy"), [("a.xlsx", "as CSV UTF-8"), ("a.pkl", "read_pickle")])
def test_files_of_other_programs(edl: Call, tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04\x80\x04" * 9)
    assert remedy in edl("data", "convert", name, "--to", "out", code=3).err


def test_labels_with_leading_zeros_are_classes(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,zip\n" + "".join(f"1,{n:05}\n" for n in range(30)))
    done = edl("data", "convert", "t.csv", "--to", "out", "--label", "zip", "-o", "json")
    assert len(done.json["classes"]) == 30
