"""Vocabularies and means belong to the job and to its trained model, not to the data of today."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NO_EVALUATION_BEFORE_THE_END, ROOT, Done, Edl, HeldTraining, eventually

DOCUMENT = ROOT / "docs" / "model-file.md"
CITIES = [f"city {number}" for number in range(24)]

AT_IMPORT = """
import csv, keras, time, os
import tensorflow as tf

with open({table!r}) as file:
    ROWS = list(csv.DictReader(file))
lookup = keras.layers.StringLookup(name="city")
lookup.adapt([row["city"] for row in ROWS])

def build_model():
    city = keras.Input((), dtype="int64", name="city")
    place = keras.layers.Embedding(lookup.vocabulary_size(), 4)(city)
    return keras.Model(city, keras.layers.Dense(1)(place))

def wait(label):
    if os.path.exists(os.environ.get("EDL_TEST_HELD", "")):
        time.sleep(0.05)
    return label

def dataset_fn(dataset, mode):
    def parse(row):
        city, age, label = tf.io.decode_csv(row, [[""], [0.0], [0.0]])
        label = tf.ensure_shape(tf.numpy_function(wait, [label], tf.float32), [])
        return lookup(city), label[tf.newaxis]
    return dataset.map(parse)

loss = keras.losses.BinaryCrossentropy(from_logits=True)
def optimizer():
    return keras.optimizers.Adam(0.02)
def eval_metrics_fn():
    return {{"accuracy": keras.metrics.BinaryAccuracy(threshold=0.0)}}
"""


def write_table(path: Path, count: int, seed: int, cities: list[str] = CITIES) -> Path:
    """Write visits that a model can tell apart by their city, 85 of 100."""
    draw = random.Random(seed)
    lines = ["city,age,label"]
    for _ in range(count):
        # The frequency of a city decides its place in a vocabulary.
        city = cities[min(int(draw.expovariate(0.15)), len(cities) - 1)]
        label = (CITIES.index(city) % 2 if city in CITIES else 0) ^ (draw.random() < 0.15)
        lines.append(f"{city},{draw.randint(18, 80)},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    return write_table(tmp_path / "train.csv", 2000, 1), write_table(tmp_path / "test.csv", 500, 2)


def train(
    edl: Edl, zoo: Path, name: str, tables: tuple[Path, Path], output: Path, *more: str
) -> Done:
    return edl.run(
        *("train", "--model-zoo", str(zoo), "--model-def", name, "--data", str(tables[0])),
        *("--validation-data", str(tables[1]), "--num-epochs", "3", "--output", str(output)),
        *("-o", "json", *NO_EVALUATION_BEFORE_THE_END, *more),
    )


def evaluate(edl: Edl, model: Path, data: Path) -> float:
    done = edl("evaluate", "--trained-model", str(model), "--data", str(data), "-o", "json")
    return float(done.json["metrics"]["accuracy"])


def predict(edl: Edl, model: Path, data: Path, output: Path) -> str:
    edl("predict", "--trained-model", str(model), "--data", str(data), "--output", str(output))
    return output.read_text()


def test_the_documented_pattern_keeps_its_state_with_the_job(
    edl: Edl, tmp_path: Path, tables: tuple[Path, Path]
) -> None:
    section = DOCUMENT.read_text().split("## State from data")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    zoo = tmp_path / "shops"
    zoo.mkdir()
    (zoo / "visits.py").write_text(found[1])

    def adapt(table: Path) -> None:
        subprocess.run([sys.executable, str(zoo / "visits.py"), str(table)], check=True)

    adapt(tables[0])
    done = train(edl, zoo, "visits", tables, tmp_path / "model", "--num-workers", "2")
    assert done.code == 0, str(done)
    accuracy = done.json["metrics"]["accuracy"]
    assert accuracy > 0.8
    assert "outside the model zoo" not in done.err
    adapt(write_table(tmp_path / "other.csv", 2000, 3, [*reversed(CITIES), "new city"]))
    assert evaluate(edl, tmp_path / "model", tables[1]) == pytest.approx(accuracy)


def test_a_lookup_that_is_adapted_at_import_is_that_of_the_trained_model(
    edl: Edl, tmp_path: Path, tables: tuple[Path, Path]
) -> None:
    table, zoo, model = tmp_path / "cities.csv", tmp_path / "zoo", tmp_path / "model"
    write_table(table, 1000, 4)
    zoo.mkdir()
    (zoo / "shops.py").write_text(AT_IMPORT.format(table=str(table)))
    done = train(edl, zoo, "shops", tables, model, "--num-workers", "2")
    assert done.code == 0, str(done)
    line = (zoo / "shops.py").read_text().split("with open")[0].count("\n") + 1
    named = f"shops.py:{line} reads {table}, which is outside the model zoo"
    assert any(named in warning for warning in done.json["warnings"]), str(done)
    assert named in done.err.partition(" started, page: ")[0], str(done)
    accuracy = done.json["metrics"]["accuracy"]
    assert accuracy > 0.8
    before = predict(edl, model, tables[1], tmp_path / "before.csv")

    # Another order, and other cities: the embedding, too, has another size without the state.
    write_table(table, 1000, 5, [*reversed(CITIES), "new city"])
    assert evaluate(edl, model, tables[1]) == pytest.approx(accuracy)
    assert predict(edl, model, tables[1], tmp_path / "after.csv") == before


def test_a_worker_with_another_vocabulary_is_refused_by_name(
    edl: Edl, tmp_path: Path, tables: tuple[Path, Path], held: HeldTraining
) -> None:
    """One of the same size, and a larger one."""
    table, zoo, model = tmp_path / "cities.csv", tmp_path / "zoo", tmp_path / "model"
    write_table(table, 1000, 4)
    original = table.read_bytes()
    zoo.mkdir()
    (zoo / "shops.py").write_text(AT_IMPORT.format(table=str(table)))
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "shops", "--data", str(tables[0])),
        *("--output", str(model), "--name", "shops", "--detach"),
    )
    eventually(lambda: edl.written_status("shops").get("state") == "RUNNING", "the job runs")

    def check_refusal(done: Done) -> None:
        assert done.code != 0
        assert "StringLookup city (shops.py:" in done.err
        assert "have another state in this worker" in done.err, "the layer, and the file"

    write_table(table, 1000, 5, [*reversed(CITIES)])
    (worker,) = [pid for pid in edl.processes() if _is_worker(pid)]
    os.kill(worker, signal.SIGKILL)
    check_refusal(edl.run("wait", "shops"))
    write_table(table, 1000, 5, ["new city", *reversed(CITIES)])
    check_refusal(edl.run("resume", "shops"))

    table.write_bytes(original)
    held.release()
    resumed = edl.run("resume", "shops", "-o", "json")
    assert resumed.code == 0, str(resumed)


FROM_OUTSIDE = """
import keras, os, sys, time
import tensorflow as tf

sys.path.insert(0, {library!r})
from edl_scales import SCALE

def build_model():
    scale = keras.layers.Rescaling(SCALE)
    return keras.Sequential([keras.Input((2,)), scale, keras.layers.Dense(1)])

def wait(label):
    if os.path.exists(os.environ.get("EDL_TEST_HELD", "")):
        time.sleep(0.05)
    return label

def dataset_fn(dataset, mode):
    def parse(row):
        city, age, label = tf.io.decode_csv(row, [[""], [0.0], [0.0]])
        label = tf.ensure_shape(tf.numpy_function(wait, [label], tf.float32), [])
        return tf.stack([age, age]), label[tf.newaxis]
    return dataset.map(parse)

loss = "mse"
optimizer = "sgd"
eval_metrics_fn = lambda: ["mae"]
"""


def test_code_outside_the_zoo_may_not_change_during_a_job_or_after_it(
    edl: Edl, tmp_path: Path, tables: tuple[Path, Path], held: HeldTraining
) -> None:
    module, zoo, model = tmp_path / "edl_scales.py", tmp_path / "zoo", tmp_path / "model"
    module.write_text("SCALE = 0.01\n")
    zoo.mkdir()
    (zoo / "ages.py").write_text(FROM_OUTSIDE.format(library=str(tmp_path)))
    started = edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "ages", "--data", str(tables[0])),
        *("--output", str(model), "--name", "ages", "--detach"),
    )
    assert f"ages.py:6 imports {module}, which is outside the model zoo" in started.err
    eventually(lambda: edl.status("ages")["state"] == "RUNNING", "the job runs")
    module.write_text("SCALE = 0.02\n")
    (worker,) = [pid for pid in edl.processes() if _is_worker(pid)]
    os.kill(worker, signal.SIGKILL)
    waited = edl.run("wait", "ages")
    assert waited.code == 4, str(waited)
    assert f"file {module} (ages.py:6)" in waited.err
    assert "Rescaling rescaling" in waited.err

    module.write_text("SCALE = 0.01\n")
    held.release()
    edl("resume", "ages")
    module.write_text("SCALE = 0.02\n")
    done = edl.run("evaluate", "--trained-model", str(model), "--data", str(tables[1]))
    assert done.code == 4, str(done)
    assert "Rescaling rescaling: scale is 0.02, and was 0.01" in done.err


def _is_worker(pid: int) -> bool:
    return b"edl_worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@pytest.mark.parametrize("call", ["fit(*DATA)", "predict(DATA[0])"])
def test_a_model_file_that_trains_by_itself_is_refused_with_its_line(
    edl: Edl, tmp_path: Path, call: str
) -> None:
    edl("zoo", "init", str(tmp_path / "zoo"))
    file = tmp_path / "zoo" / "circle.py"
    source = file.read_text() + f"\nDATA = tf.zeros((8, 2)), tf.zeros((8, 1))\nmodel.{call}\n"
    file.write_text(source)
    done = edl.run(
        *("train", "--model-zoo", str(file.parent), "--model-def", "circle"),
        *("--data", str(file.parent / "data" / "train.recordio"), "--output", str(tmp_path / "m")),
    )
    assert done.code == 4, str(done)
    name = call.partition("(")[0]
    assert f"calls {name}() while it is loaded" in done.err
    assert f"circle.py:{len(source.splitlines())}" in done.err
    assert '__name__ == "__main__"' in done.err
