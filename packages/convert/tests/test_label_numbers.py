"""``edl data convert --labels`` gives labels the numbers of other data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from converted_records import TABLE, Call, commands, examples


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


def test_a_label_of_texts_gets_the_numbers_of_other_data(edl: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "numbers.json").write_text('{"Rom": 0, "Köln": 5, "Köln, West": 7}')
    convert = ("data", "convert", "t.csv", "--to", "out", "--columns", "income")
    edl(*convert, "--label", "town", "--labels", "numbers.json")
    assert [one["label"] for one in examples("out/*.recordio")] == [[7], [0], [5]]
    for content, said in (
        ('{"Rom": 0}', "the class 'Köln' has no number"),
        ("[]", "cannot be read"),
        ("{}", "has no labels"),
    ):
        (tmp_path / "numbers.json").write_text(content)
        given = ("--label", "town", "--labels", "numbers.json")
        failed = edl(*convert[:3], "--to", "other", *given, code=2)
        assert said in failed.err
    (tmp_path / "numbers.json").write_text('{"Rom": 0}')
    failed = edl(*convert[:3], "--to", "other", "--labels", "numbers.json", code=2)
    assert "--labels has no effect" in failed.err


def test_other_images_get_the_numbers_of_the_first(edl: Call, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for name in ("cat", "dog"):
        (photos / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.full((2, 3), number, np.uint8)
            PIL.Image.fromarray(pixels).save(photos / name / f"{number}.png")
    edl("data", "convert", "photos", "--to", "first.recordio")
    shutil.rmtree(photos / "cat")
    given = ("--labels", "first.labels.json")
    edl("data", "convert", "photos", "--to", "dogs.recordio", *given)
    assert [one["label"] for one in examples("dogs.recordio")] == [[1], [1]]
    assert json.loads(Path("dogs.labels.json").read_text()) == {"cat": 0, "dog": 1}
    (photos / "dog").rename(photos / "fish")
    failed = edl("data", "convert", "photos", "--to", "fish.recordio", *given, code=2)
    assert "the class 'fish' has no number in the file of --labels" in failed.err


def test_numbers_with_decimal_commas_are_named(edl: Call, tmp_path: Path) -> None:
    rows = "".join(f"{number};{number},5;word{number};1\n" for number in range(30))
    (tmp_path / "t.csv").write_text(f"age;income;city;y\n{rows}")
    done = edl("data", "convert", "t.csv", "--to", "out", "--label", "y")
    assert "warning: the column income has texts, such as '0,5'" in done.out
    assert "decimal points" in done.out
    assert done.out.count("warning") == 1
