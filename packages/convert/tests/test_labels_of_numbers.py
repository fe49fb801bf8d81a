"""edl data convert on labels that are numbers in another notation, or hardly numbers."""

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


def test_labels_with_leading_zeros_are_classes(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,zip\n" + "".join(f"1,{n:05}\n" for n in range(30)))
    done = edl("data", "convert", "t.csv", "--to", "out", "--label", "zip", "-o", "json")
    assert len(done.json["classes"]) == 30
