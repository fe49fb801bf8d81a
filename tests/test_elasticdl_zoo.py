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
from conftest import NO_EVALUATION_BEFORE_THE_END, ROOT, Edl
from safetensors.numpy import load_file

import recordio
import recordio.example

ZOO = ROOT / "tests" / "elasticdl_zoo"
RECORDS, EPOCHS = 120, 20

Make = Callable[[Path], list[int]]
"""Writes records, and returns their labels."""

CHANCE = 0.64
"""Between 35 and 65% of the labels are 1. A prediction that is the same for all records, whatever
it is, has a larger cross-entropy than this."""

LEARNED = CHANCE / 4
"""Of eight seeds of each model, none had a loss above 0.02, or below 0.57 before its training."""


def people(path: Path) -> list[int]:
    """Rows whose label follows from age and city; from the age alone, not even three of four."""
    random, labels = np.random.default_rng(1), []
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("age", "city", "label"))
        for _ in range(RECORDS):
            age, city = int(random.integers(10, 80)), str(random.choice(["paris", "rome", "oslo"]))
            labels.append(int((age >= 40) != (city == "rome")))
            rows.writerow((age, city, labels[-1]))
    return labels


def ids(path: Path) -> list[int]:
    """Three ids each; the label follows from the first one."""
    random, labels = np.random.default_rng(2), []
    with recordio.Writer(str(path)) as writer:
        for _ in range(RECORDS):
            first = random.integers(1, 10)
            numbers = np.array([first, random.integers(10) * 1000, 0])
            labels.append(int(first > 4))
            writer.write(recordio.example.encode({"ids": numbers, "label": np.array(labels[-1:])}))
    return labels


def images(path: Path) -> list[int]:
    """Dark and light ones."""
    random, labels = np.random.default_rng(3), [number % 2 for number in range(RECORDS)]
    with recordio.Writer(str(path)) as writer:
        for label in labels:
            image = random.random(36, np.float32) + label
            writer.write(recordio.example.encode({"image": image, "label": np.array([label])}))
    return labels


@pytest.fixture
def train(edl: Edl, tmp_path: Path) -> Callable[..., Any]:
    def train(model_def: str, make: Make, *more: str) -> Any:
        """Train a file as it is; what must be right of each of them is asserted here."""
        data = tmp_path / ("data.csv" if make is people else "data.recordio")
        assert 0.35 <= np.mean(make(data)) <= 0.65
        model = ("--model-zoo", str(ZOO), "--model-def", model_def, "--data", str(data))
        result = edl(
            *("train", *model, "--validation-data", str(data), "--num-epochs", str(EPOCHS)),
            *("--minibatch-size", "8", "--output", str(tmp_path / "model"), "-o", "json"),
            # A task for each epoch and one evaluation: of a short task, most is its beginning.
            *("--records-per-task", str(RECORDS), *NO_EVALUATION_BEFORE_THE_END, *more),
        ).json
        assert result["state"] == "SUCCEEDED"
        assert result["records_trained"] == EPOCHS * RECORDS
        assert (tmp_path / "model" / "saved_model").is_dir()
        return result

    return train


def test_columns_of_features_and_metrics_by_output(train: Callable[..., Any]) -> None:
    result = train("table.custom_model", people, "--num-workers", "2")
    assert result["metrics"]["loss"] < LEARNED
    assert result["metrics"]["probs_auc"] > 0.95
    assert result["metrics"]["logits_accuracy"] > 0.95


def test_embedding_tables_and_a_processor_of_predictions(
    edl: Edl, tmp_path: Path, train: Callable[..., Any]
) -> None:
    result = train("ids.custom_model", ids, "--parameter-servers", "1")
    assert result["metrics"]["loss"] < LEARNED
    assert result["metrics"]["probs_auc"] > 0.95
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
    result = train("images.CustomModel", images)
    assert result["metrics"]["loss"] < LEARNED
    assert result["metrics"]["accuracy"] > 0.95
    trained = load_file(str(tmp_path / "model" / "parameters.safetensors"))
    moving = [name for name in trained if "moving_mean" in name]
    assert moving, "the layer of the old path is Keras 3's own BatchNormalization"
    assert all(trained[name].any() for name in moving)


def test_a_data_reader_and_preprocessing_layers(train: Callable[..., Any]) -> None:
    """Only what the reader writes tells which people live in Rome."""
    result = train("readers.custom_model", people)
    assert result["metrics"]["loss"] < LEARNED
    assert result["metrics"]["accuracy"] > 0.95


def test_the_master_follows_a_schedule_by_version(
    tmp_path: Path, train: Callable[..., Any]
) -> None:
    """The gradient of the bias is 1: three updates with 1.0, two with 0.125, all others with 0."""
    train("schedule.custom_model", people)
    trained = load_file(str(tmp_path / "model" / "parameters.safetensors"))
    (bias,) = (value for name, value in trained.items() if "bias" in name)
    assert bias.tolist() == [-3.25]


def test_a_model_of_tf_keras(train: Callable[..., Any]) -> None:
    """The mean of the labels has a squared error of 1.0, and an untrained model at least 9.

    Of 16 seeds, the worst had 0.02, and an absolute error of 0.12.
    """
    result = train("keras2.custom_model", people)
    named, lacks = sorted(result["warnings"], key=lambda text: "no model.keras" in text)
    assert "one of tf_keras (Keras 2)" in named
    assert "no model.keras" in lacks
    assert result["metrics"]["loss"] < 0.25
    assert 0 < result["metrics"]["mae"] < 0.5
