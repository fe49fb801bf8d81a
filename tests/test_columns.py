"""Columns by name: those of every file are compared with those of the training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Edl, MakeEdl, leaving_no_process

from edl_proto.v1 import model_pb2

MODEL = """
import keras
import tensorflow as tf

from elasticdl.python.common.constants import Mode

values = keras.Input((2,), name="values")
model = keras.Model(values, keras.layers.Dense(1)(values))


def dataset_fn(dataset, mode):
    def parse(row):
        if mode == Mode.PREDICTION:
            left, right = tf.io.decode_csv(row, [[0.0], [0.0]])
            return tf.stack([left, right])
        left, right, label = tf.io.decode_csv(row, [[0.0], [0.0], [0.0]])
        return tf.stack([left, right]), [label]

    return dataset.map(parse)


loss = keras.losses.BinaryCrossentropy(from_logits=True)
optimizer = keras.optimizers.Adam(0.05)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.BinaryAccuracy(threshold=0.0)}
"""


def write(file: Path, columns: str, rows: int = 200, seed: int = 0) -> Path:
    """Write rows whose label says whether left is larger than right."""
    drawn = np.random.default_rng(seed)
    lines = [columns]
    for number in range(rows):
        left, right = drawn.normal(size=2)
        values = {"left": left, "right": right, "label": int(left > right), "id": f'"n,{number}"'}
        lines.append(",".join(str(values.get(name, "text")) for name in columns.split(",")))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("columns")


@pytest.fixture(scope="module")
def command(place: Path, make_edl: MakeEdl) -> Iterator[Edl]:
    with leaving_no_process(make_edl(place / "home")) as edl:
        yield edl


@pytest.fixture(scope="module")
def trained(command: Edl, place: Path) -> Path:
    """A model that was trained on two files, one of which has its columns in another order."""
    zoo, data = place / "zoo", place / "data"
    zoo.mkdir()
    data.mkdir()
    (zoo / "larger.py").write_text(MODEL)
    write(data / "0.csv", "left,right,label", seed=1)
    write(data / "1.csv", "right,label,id,left", seed=2)
    validation = write(place / "validation.csv", "label,left,right", seed=3)
    done = command(
        *("train", "--model-zoo", str(zoo), "--model-def", "larger", "--num-epochs", "15"),
        *("--data", str(data), "--validation-data", str(validation), "-o", "json"),
        *("--output", str(place / "model"), "--name", "trained"),
    )
    assert done.json["metrics"]["accuracy"] > 0.9
    return place / "model"


@pytest.fixture
def evaluate(command: Edl, trained: Path) -> Callable[[Path], dict[str, float]]:
    def run(data: Path, model: Path = trained) -> dict[str, float]:
        done = command("evaluate", "--trained-model", str(model), "--data", str(data), "-o", "json")
        metrics: dict[str, float] = done.json["metrics"]
        return metrics

    return run


def test_files_of_one_job_are_read_in_one_order(command: Edl, trained: Path) -> None:
    events = (command.job_dir("trained") / "events.jsonl").read_text()
    messages = [json.loads(line).get("message", "") for line in events.splitlines()]
    assert any("1.csv" in each and "in the order of" in each for each in messages), messages
    assert any("1.csv" in each and "'id'" in each and "ignored" in each for each in messages)
    assert any("validation.csv" in each and "in the order of" in each for each in messages)


def test_swapped_columns_change_no_metric(
    evaluate: Callable[..., dict[str, float]], place: Path
) -> None:
    straight = evaluate(write(place / "straight.csv", "left,right,label", seed=4))
    assert straight["accuracy"] > 0.9
    assert evaluate(write(place / "swapped.csv", "id,right,left,label", seed=4)) == straight


def test_predictions_need_no_label_and_keep_other_columns(
    command: Edl, trained: Path, place: Path
) -> None:
    found = []
    for name, columns in (("p", "left,right,id"), ("q", "id,right,left")):
        data = write(place / f"{name}.csv", columns, seed=5)
        command(
            *("predict", "--trained-model", str(trained), "--data", str(data), "--keep", "id"),
            *("--output", str(place / f"{name}.jsonl")),
        )
        found.append((place / f"{name}.jsonl").read_text())
    assert found[0] == found[1]
    first = json.loads(found[0].splitlines()[0])
    assert first["id"] == "n,0"


def test_other_columns_are_refused_by_name(command: Edl, trained: Path, place: Path) -> None:
    for columns, words in {
        "left,rigth,label": ("'right'", "'rigth'", "rename"),
        "left,text,right": ("'label'", "'text'"),
    }.items():
        data = write(place / "wrong.csv", columns)
        done = command.run("evaluate", "--trained-model", str(trained), "--data", str(data))
        assert done.code not in (0, 1), done
        assert all(word in done.err for word in (*words, "wrong.csv")), done
    data.write_text("left,right,label\nlow,0.5,1\nhigh,0.25,0\n")
    done = command.run("evaluate", "--trained-model", str(trained), "--data", str(data))
    assert done.code not in (0, 1), done
    assert "'left' has text, in the training data numbers" in done.err


def test_a_model_of_an_earlier_version_is_used_as_before(
    evaluate: Callable[..., dict[str, float]], trained: Path, place: Path
) -> None:
    old = shutil.copytree(trained, place / "old")
    described = model_pb2.TrainedModel.FromString((old / "trained_model.pb").read_bytes())
    assert b"right" in described.data
    described.ClearField("data")
    (old / "trained_model.pb").write_bytes(described.SerializeToString())
    data = write(place / "earlier.csv", "left,right,label", seed=4)
    assert evaluate(data, old)["accuracy"] > 0.9
