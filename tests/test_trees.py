"""A job grows the trees of XGBoost alone, though a worker dies while it grows some of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import xgboost
from conftest import ROOT, Edl, eventually
from counting import event_kinds

ROUNDS, FATAL = 6, 3
IDLE_S = 2.0
"""How long a worker that could take a round is watched."""
PARAMS = {"eta": 0.5, "max_depth": 3, "subsample": 1.0, "colsample_bynode": 1.0}

HELD = f"""
import os, time
from pathlib import Path
from trees import BoostedTreesRegressor, callbacks

PLACE = Path(os.environ["EDL_TEST_TREES"])


class Held(BoostedTreesRegressor):
    learns_whole_epochs = True

    def _grow(self, *args):
        first = int(args[-1][0])
        (PLACE / f"{{first}}-{{os.getpid()}}").touch()
        while first == {FATAL} and (PLACE / "held").exists():
            time.sleep(0.05)
        return super()._grow(*args)
"""
"""Trees, which tell who grows them; one round is held until it is released."""


def test_a_worker_that_dies_costs_no_tree_and_adds_none(edl: Edl, tmp_path: Path) -> None:
    place = tmp_path / "held"
    place.mkdir()
    (place / "held").touch()
    edl.env["EDL_TEST_TREES"] = str(place)
    left_out = shutil.ignore_patterns("cifar10", "ctr", "mnist", "text", "__pycache__")
    zoo = Path(shutil.copytree(ROOT / "model_zoo", tmp_path / "zoo", ignore=left_out))
    (zoo / "held.py").write_text(HELD)
    inputs = np.random.default_rng(3).normal(size=(300, 2)).astype(np.float32)
    labels = (np.where(inputs[:, 0] > 0, 3, 1) * inputs[:, 1]).astype(np.float32)
    with closing(sqlite3.connect(tmp_path / "my.db")) as database, database:
        database.execute("CREATE TABLE flats (size REAL, floor REAL, price REAL)")
        rows = np.column_stack([inputs, labels]).astype(float).tolist()
        database.executemany("INSERT INTO flats VALUES (?, ?, ?)", rows)
    params = ", ".join(f"{name}={value}" for name, value in PARAMS.items())
    running = edl.start(
        *("sql", "--db", f"sqlite:///{tmp_path / 'my.db'}", "--model-zoo", str(zoo), "-o", "json"),
        *("--models", str(tmp_path / "models"), "--work-dir", str(tmp_path), "--num-workers", "2"),
        "-e",
        f"SELECT * FROM flats TO TRAIN held.Held WITH num_boost_round={ROUNDS}, {params},"
        " validation.select='SELECT * FROM flats' LABEL price INTO m",
    )
    try:
        (growing,) = eventually(lambda: list(place.glob(f"{FATAL}-*")), "a round is grown")
        (job,) = edl.job_dir("").iterdir()
        eventually(lambda: event_kinds(edl, job.name).count("WorkerReady") == 2, "both are ready")
        time.sleep(IDLE_S)
        assert list(place.glob(f"{FATAL}-*")) == [growing], "the other worker does not grow it, too"
        os.kill(int(growing.name.partition("-")[2]), signal.SIGKILL)
        (place / "held").unlink()
        out, err = running.communicate(timeout=600)
    finally:
        (place / "held").unlink(missing_ok=True)
        running.kill()
    assert running.returncode == 0, err
    (told,) = json.loads(out)
    assert edl.status(told["job"])["preemptions"] == 1
    grown = sorted(int(file.name.partition("-")[0]) for file in place.iterdir())
    assert grown == sorted([*range(ROUNDS), FATAL]), "no other round was grown twice"

    data = xgboost.QuantileDMatrix(inputs, labels)
    booster = xgboost.train({**PARAMS, "tree_method": "hist"}, data, ROUNDS)
    errors = [
        float(np.sqrt(np.mean((booster.predict(data, iteration_range=(0, n)) - labels) ** 2)))
        for n in (ROUNDS - 1, ROUNDS)
    ]
    assert errors[1] < 0.9 * errors[0], "each round counts"
    assert told["metrics"]["root_mean_squared_error"] == pytest.approx(errors[1], rel=1e-4)
