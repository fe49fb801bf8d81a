"""Files in the style of ElasticDL are trained, evaluated and predict, as they are.

``elasticdl_zoo/`` has a file for each group of rows in docs/elasticdl.md; the worker's own tests
try each row in one process.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Edl
from safetensors.numpy import load_file

import recordio
import recordio.example

ZOO = ROOT / "tests" / "elasticdl_zoo"
RECORDS, EPOCHS = 120, 5


def people(path: Path) -> None:
    """Rows whose label follows from age and city."""
    random = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("age", "city", "label"))
        for _ in range(RECORDS):
            age, city = int(random.integers(10, 80)), str(random.choice(["paris", "rome", "oslo"]))
            rows.writerow((age, city, int((age > 40) != (city == "rome"))))


def ids(path: Path) -> None:
    """Three ids each; the label follows from the first one."""
    random = np.random.default_rng(2)
    with recordio.Writer(str(path)) as writer:
        for _ in range(RECORDS):
            first = random.integers(1, 10)
            numbers = np.array([first, random.integers(10) * 1000, 0])
            writer.write(
                recordio.example.encode({"ids": numbers, "label": np.array([int(first > 4)])})
            )


def images(path: Path) -> None:
    """Dark and light ones."""
    random = np.random.default_rng(3)
    with recordio.Writer(str(path)) as writer:
        for number in range(RECORDS):
            image = random.random(36, np.float32) + number % 2
            writer.write(recordio.example.encode({"image": image, "label": np.array([number % 2])}))


@pytest.fixture
def train(edl: Edl, tmp_path: Path) -> Callable[..., Any]:
    def train(model_def: str, make: Callable[[Path], None], *more: str) -> Any:
        """Train a file as it is; what must be right of each of them is asserted here."""
        data = tmp_path / ("data.csv" if make is people else "data.recordio")
        make(data)
        model = ("--model-zoo", str(ZOO), "--model-def", model_def, "--data", str(data))
        result = edl(
            *("train", *model, "--validation-data", str(data), "--num-epochs", str(EPOCHS)),
            *("--minibatch-size", "8", "--output", str(tmp_path / "model"), "-o", "json", *more),
        ).json
        assert result["state"] == "SUCCEEDED"
        assert result["records_trained"] == EPOCHS * RECORDS
        assert (tmp_path / "model" / "saved_model").is_dir()
        return result

    return train


def test_columns_of_features_and_metrics_by_output(train: Callable[..., Any]) -> None:
    result = train("table.custom_model", people, "--num-workers", "2")
    assert result["metrics"]["probs_auc"] > 0.6
    assert 0 < result["metrics"]["logits_accuracy"] <= 1


def test_embedding_tables_and_a_processor_of_predictions(
    edl: Edl, tmp_path: Path, train: Callable[..., Any]
) -> None:
    result = train("ids.custom_model", ids, "--parameter-servers", "1")
    assert result["metrics"]["probs_auc"] > 0.9
    output = tmp_path / "predictions.csv"
    edl(
        *("predict", "--trained-model", str(tmp_path / "model")),
        *("--data", str(tmp_path / "data.recordio"), "--output", str(output), "-q"),
        env={"PROCESSED": str(tmp_path)},
    )
    with output.open(newline="") as file:
        found = [float(row["probs"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(np.loadtxt(tmp_path / "worker-0"), found, atol=1e-6)


def test_layers_of_old_paths_and_records_that_the_input_function_parses(
    tmp_path: Path, train: Callable[..., Any]
) -> None:
    before = train("images.CustomModel", images)
    assert before["metrics"]["loss"] < 2.0
    trained = load_file(str(tmp_path / "model" / "parameters.safetensors"))
    moving = [name for name in trained if "moving_mean" in name]
    assert moving, "the layer of the old path is Keras 3's own BatchNormalization"
    assert all(trained[name].any() for name in moving)


def test_a_data_reader_and_preprocessing_layers(train: Callable[..., Any]) -> None:
    """Cities are told apart only as the reader writes them."""
    assert train("readers.custom_model", people)["metrics"]["accuracy"] > 0.7


def test_the_master_follows_a_schedule_by_version(
    tmp_path: Path, train: Callable[..., Any]
) -> None:
    """The gradient of the bias is 1: three updates with 1.0, two with 0.125, all others with 0."""
    train("schedule.custom_model", people)
    trained = load_file(str(tmp_path / "model" / "parameters.safetensors"))
    (bias,) = (value for name, value in trained.items() if "bias" in name)
    assert bias.tolist() == [-3.25]


def test_a_model_of_keras_2(train: Callable[..., Any]) -> None:
    result = train("keras2.custom_model", people)
    (warning,) = result["warnings"]
    assert "no model.keras" in warning
    assert 0 < result["metrics"]["mae"] < 1
