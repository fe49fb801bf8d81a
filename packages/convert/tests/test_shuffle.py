"""The order of converted records: seeded, complete, and in bounded memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from converted_records import Call, commands, examples, records

import elasticdl
from edl_convert.api import FileLayout
from edl_convert.shuffle import shuffle

ROWS = 400
HELD = 20_000
"""Bytes in memory: of the 6,000 records of a test, about 230."""


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    return commands(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rows in the order of their numbers, and so of their classes."""
    rows = [f"{number},{'ab'[number >= ROWS // 2]}" for number in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["number,class", *rows, ""]))
    return tmp_path / "t.csv"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    import PIL.Image

    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(40):
            pixel = PIL.Image.new("L", (1, 1), 100 * label + number)
            pixel.save(tmp_path / "photos" / name / f"{number:02}.png")
    return tmp_path / "photos"


def longest_run(values: list[object]) -> int:
    longest = run = 1
    for one, other in pairwise(values):
        run = run + 1 if one == other else 1
        longest = max(longest, run)
    return longest


def contents(folder: str) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in Path(folder).rglob("*")
        if file.is_file()
    }


def test_images_of_folders_are_shuffled(edl: Call, photos: Path) -> None:
    edl("data", "convert", "photos", "--to", "out")
    labels = [one["label"][0] for one in examples("out/*.recordio")]
    assert sorted(labels) == [0] * 40 + [1] * 40
    assert longest_run(labels) < 15
    edl("data", "convert", "photos", "--to", "sorted", "--no-shuffle")
    assert [one["label"][0] for one in examples("sorted/*.recordio")] == [0] * 40 + [1] * 40


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.recordio"])
def test_rows_that_a_split_has_drawn_are_shuffled_unless_their_order_is_wanted(
    edl: Call, table: Path, name: str
) -> None:
    if name == "t.parquet":
        import pyarrow.csv
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.csv.read_csv(table), name)
    elif name == "t.recordio":
        edl("data", "convert", "t.csv", "--to", name)
    command = ("data", "convert", name, "--split", "0.5", "--to")
    edl(*command, "out")
    edl(*command, "kept", "--no-shuffle")
    for part in ("train", "test"):
        numbers = [one["number"][0] for one in examples(f"out/{part}/*")]
        assert numbers != sorted(numbers)
        assert longest_run([one["class"][0] for one in examples(f"out/{part}/*")]) < 20
        numbers = [one["number"][0] for one in examples(f"kept/{part}/*")]
        assert numbers == sorted(numbers)
    assert sorted(one["number"][0] for one in examples("out/*/*")) == list(range(ROWS))


def test_the_rows_of_a_table_keep_their_order_unless_asked(edl: Call, table: Path) -> None:
    edl("data", "convert", "t.csv", "--to", "out")
    in_order = [one["number"][0] for one in examples("out/*.recordio")]
    assert in_order == list(range(ROWS))
    edl("data", "convert", "t.csv", "--label", "class", "--to", "labelled")
    assert [one["number"][0] for one in examples("labelled/*.recordio")] == in_order
    edl("data", "convert", "t.csv", "--to", "mixed", "--shuffle")
    shuffled = examples("mixed/*.recordio")
    assert sorted(one["number"][0] for one in shuffled) == in_order
    assert longest_run([one["class"][0] for one in shuffled]) < 20


@pytest.mark.parametrize("source", ["t.csv", "photos"])
def test_the_same_seed_makes_the_same_files(
    edl: Call, table: Path, photos: Path, source: str
) -> None:
    options = ("--shuffle", "--split", "0.8", "--records-per-file", "50", "--to")
    for place, seed in (("one", "3"), ("same", "3"), ("other", "4")):
        edl("data", "convert", source, "--seed", seed, *options, place)
    assert contents("one") == contents("same")
    assert contents("one") != contents("other")
    assert sorted(records("one/*/*")) == sorted(records("other/*/*"))


def test_the_python_api_shuffles_too(edl: Call, table: Path) -> None:
    layout = FileLayout(shuffle=True, seed=3)
    elasticdl.convert_data("t.csv", output="api", layout=layout)
    edl("data", "convert", "t.csv", "--to", "out", "--shuffle", "--seed", "3")
    assert records("api/*.recordio") == records("out/*.recordio")
    assert [one["number"][0] for one in examples("api/*.recordio")] != list(range(ROWS))


def test_more_than_memory_holds_goes_through_files(tmp_path: Path) -> None:
    made = [random.Random(number).randbytes(20) for number in range(6_000)]
    peak = 0

    def watch() -> Iterator[bytes]:
        nonlocal peak
        for number, record in enumerate(made):
            if number % 100 == 0:
                peak = max(peak, len(list(tmp_path.rglob("*.tmp"))))
            yield record

    order = list(shuffle(watch(), 5, tmp_path, HELD))
    assert peak == 32, "nothing was spread over files"
    assert sorted(order) == sorted(made)
    places = {record: place for place, record in enumerate(order)}
    quarter = len(made) // 4
    for first in range(0, len(made), quarter):  # each quarter of the input is everywhere
        mean = sum(places[record] for record in made[first : first + quarter]) / quarter
        assert abs(mean - len(made) / 2) < 300  # 6 standard deviations of such a mean
    assert list(shuffle(made, 5, tmp_path, HELD)) == order
    assert list(shuffle(made, 6, tmp_path, HELD)) != order
    assert not list(tmp_path.iterdir()), "the files are removed"


def test_what_does_not_fit_even_then_is_spread_again(tmp_path: Path) -> None:
    made = [bytes([number % 256]) * 300 + str(number).encode() for number in range(2_000)]
    order = list(shuffle(made, 1, tmp_path, held_bytes=3_000))  # 60 records in a file, 9 held
    assert sorted(order) == sorted(made)
    assert order != made
