"""A row that the model file cannot take is named by file and line, wherever the job meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Done, Edl
from refusals import DATA, MODEL, check_refusal

import recordio
import recordio.example

SOURCE = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

def dataset_fn(dataset, mode):
    def parse(row):
        left, right, label = tf.io.decode_csv(row, [[0.0], [0.0], [0.0]])
        return tf.stack([left, right]), [label]
    return dataset.map(parse).shuffle(64)

def input_fn(records):
    features = np.array([[r["left"], r["right"]] for r in records], "float32")
    return features, np.array([[r["label"]] for r in records], "float32")

def examples_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "label": tf.io.FixedLenFeature([1], tf.float32)})
        return r["x"], r["label"]
    return dataset.map(parse)

loss = keras.losses.BinaryCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.01)
"""
ROWS = 3000


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    place = tmp_path / "zoo"
    place.mkdir()
    (place / "rows.py").write_text("import numpy as np\n" + SOURCE)
    return place


def write(path: Path, bad: dict[int, str]) -> Path:
    """Write a file whose lines, counted from 1, are good but for some."""
    lines = ["left,right,label", *(f"{number}.5,2.5,1" for number in range(2, ROWS + 2))]
    for line, text in bad.items():
        lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    return path


def train(edl: Edl, zoo: Path, data: Path, *more: str) -> Done:
    return edl.run(
        *("train", "--model-zoo", str(zoo), "--model-def", "rows", "--data", str(data)),
        *("--output", str(zoo.parent / "model"), *more),
    )


@pytest.mark.parametrize(
    ("function", "text", "code", "what"),
    [
        ("dataset_fn", "1.5,abc,1", MODEL, "Field 1 in record 0 is not a valid float: abc"),
        ("input_fn", "1.5,abc,1", MODEL, "could not convert string to float"),
    ],
)
def test_a_bad_row_among_the_first_is_named_before_anything_is_trained(
    edl: Edl, tmp_path: Path, zoo: Path, function: str, text: str, code: int, what: str
) -> None:
    data = write(tmp_path / "data.csv", {17: text})
    option = f"--{function.replace('_', '-')}"
    done = train(edl, zoo, data, option, function, "--name", "early")
    check_refusal(done, code, f"{data}:17", f"'{text}'", what)
    assert edl.status("early")["records_trained"] == 0


@pytest.mark.parametrize(("text", "cells"), [("1.5,1", 2), ("1.5,2.5,1,7", 4)])
def test_a_row_of_another_length_is_named_before_there_is_a_job(
    edl: Edl, tmp_path: Path, zoo: Path, text: str, cells: int
) -> None:
    data = write(tmp_path / "data.csv", {17: text})
    done = train(edl, zoo, data, "--name", "early")
    what = f"the row has {cells} cells, and the header 3"
    check_refusal(done, DATA, f"{data}:17", f"'{text}'", what)
    assert edl.run("status", "early").code != 0


def test_a_bad_row_further_on_is_named_by_the_job(edl: Edl, tmp_path: Path, zoo: Path) -> None:
    data = write(tmp_path / "data.csv", {2345: "1.5,abc,1"})
    done = train(edl, zoo, data, "--name", "bad-rows")
    check_refusal(done, MODEL, f"{data}:2345", "'1.5,abc,1'", "not a valid float: abc")
    failure = edl.status("bad-rows")["error"]
    assert failure["where"].startswith(f"{data}:2345, read by {zoo}/rows.py:"), failure
    assert "Correct or remove this row" in failure["remedy"]


def test_a_value_that_is_not_finite_is_named_by_the_job(
    edl: Edl, tmp_path: Path, zoo: Path
) -> None:
    data = write(tmp_path / "data.csv", {2345: "1.5,nan,1"})
    check_refusal(
        train(edl, zoo, data), DATA, f"the features are not finite; right=nan at {data}:2345"
    )


def test_dead_letters_name_their_rows(edl: Edl, tmp_path: Path, zoo: Path) -> None:
    data = write(tmp_path / "data.csv", {2345: "1.5,abc,1"})
    done = train(edl, zoo, data, "--name", "dead", "--allow-dead-letters")
    assert done.code == 0, str(done)
    (letter,) = edl.status("dead")["dead_letters"]
    assert f"{data}:2345" in letter["error"]["where"], letter
    assert "the row '1.5,abc,1'" in letter["error"]["what"]
    assert f"{data}:2345" in edl("logs", "dead").out


def test_a_bad_record_is_named_by_its_number(edl: Edl, tmp_path: Path, zoo: Path) -> None:
    data = tmp_path / "data.recordio"
    with recordio.Writer(str(data)) as writer:
        for number in range(ROWS):
            x = [0.5, 2.5] if number != 1234 else [0.5]
            writer.write(recordio.example.encode({"x": x, "label": [1.0]}))
    done = train(edl, zoo, data, "--dataset-fn", "examples_fn")
    check_refusal(done, MODEL, f"{data}, record 1234", "{label=1, x=0.5}")
