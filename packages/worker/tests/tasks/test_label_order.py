"""Jobs that train in the order of their data are warned where that is an order by label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_data import example
from google.protobuf import json_format
from model_files import LOSS, MODEL, REST
from trial_jobs import load
from zoo_folder import ZooFolder

import recordio
from edl_proto.v1 import job_pb2
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.tasks.job_check import run_check

TOTAL = 400


def write(path: Path, labels: Sequence[float]) -> str:
    with recordio.Writer(str(path), chunk_records=50) as writer:
        for label in labels:
            values = np.array([label, 1.0], np.float32)
            writer.write(example(x=values, y=np.array([label], np.float32)))
    return str(path)


def warnings(zoo: ZooFolder, data: str, *, shuffle: bool = False) -> tuple[str, ...]:
    loaded = load(zoo, data, REST + LOSS + MODEL, shuffle=shuffle)
    found = loaded.describe().warnings
    assert replace(loaded, worker_id=1).describe().warnings == (), "one worker is enough"
    return found


@pytest.mark.parametrize("classes", [2, 10])
def test_labels_in_long_runs_without_shuffling(
    zoo: ZooFolder, tmp_path: Path, classes: int
) -> None:
    data = write(tmp_path / "sorted.recordio", [n * classes // TOTAL for n in range(TOTAL)])
    (warning,) = warnings(zoo, data)
    assert "the labels come in long runs, and --no-shuffle keeps that order" in warning
    assert "edl data convert --shuffle" in warning
    assert warnings(zoo, data, shuffle=True) == ()


def test_the_check_of_a_job_warns_before_it_starts(zoo: ZooFolder, tmp_path: Path) -> None:
    zoo.write("mine.py", REST + LOSS + MODEL)
    data = write(tmp_path / "sorted.recordio", [n * 2 // TOTAL for n in range(TOTAL)])
    spec = job_pb2.JobSpec(name="tried", type=job_pb2.TRAIN, data=[data], minibatch_size=8)
    spec.model.model_zoo, spec.model.model_def = str(zoo.root), "mine"
    spec.training.local_steps = 1
    path = tmp_path / "spec.json"
    path.write_text(json_format.MessageToJson(spec))
    (warning,) = run_check(path, TensorFlow())["warnings"]
    assert "the labels come in long runs" in warning


def test_a_file_for_each_label(zoo: ZooFolder, tmp_path: Path) -> None:
    for label in range(3):
        write(tmp_path / f"{label}.recordio", [float(label)] * 50)
    (warning,) = warnings(zoo, str(tmp_path / "*.recordio"))
    assert "of 3 labels" in warning


@pytest.mark.parametrize("positives", [0.5, 0.02])
def test_labels_in_random_order_and_rare_ones(
    zoo: ZooFolder, tmp_path: Path, positives: float
) -> None:
    labels = np.random.default_rng(5).random(TOTAL) < positives
    data = write(tmp_path / "mixed.recordio", labels.astype(float).tolist())
    assert warnings(zoo, data) == ()


def test_targets_that_are_no_classes(zoo: ZooFolder, tmp_path: Path) -> None:
    data = write(tmp_path / "prices.recordio", np.linspace(0, 1, TOTAL).tolist())
    assert warnings(zoo, data) == ()
