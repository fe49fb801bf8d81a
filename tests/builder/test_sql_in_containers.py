"""``edl sql --platform docker``: the jobs of statements run in containers of a real engine."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from conftest import Edl

from edl_proto.v1 import model_pb2

from .docker_environment import DockerEnvironment

ROWS = 400


def test_statements_grow_trees_and_predict_in_containers(
    job_docker_env: DockerEnvironment, in_containers: Edl, tmp_path: Path
) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE rides (id INTEGER PRIMARY KEY, distance REAL, price REAL)")
        database.executemany(
            "INSERT INTO rides VALUES (?, ?, ?)",
            ((number, number % 20, 3.0 + number % 20 * 2) for number in range(ROWS)),
        )
    done = in_containers(
        *("sql", "--db", f"sqlite:///{file}", "-o", "json"),
        *("--models", str(tmp_path / "models"), "--work-dir", str(tmp_path / "records")),
        "-e",
        "SELECT distance, price FROM rides"
        " TO TRAIN BoostedTreesRegressor WITH num_boost_round=4, eta=0.5 LABEL price INTO prices;"
        "SELECT id, distance FROM rides PREDICT rides.predicted USING prices;",
        timeout=900,
        cwd=tmp_path,  # without a zoo: the builder gets the models of edl-sql, and XGBoost
    )
    assert "image: building" in done.err
    trained, predicted = json.loads(done.out)
    assert trained["rows"] == predicted["rows"] == ROWS
    with closing(sqlite3.connect(file)) as database:
        found = database.execute("SELECT predicted, price FROM rides").fetchall()
    mean = sum(price for _, price in found) / ROWS
    baseline = sum((mean - price) ** 2 for _, price in found)
    assert sum((guess - price) ** 2 for guess, price in found) < 0.5 * baseline
    model = model_pb2.TrainedModel.FromString(
        (tmp_path / "models" / "prices" / "trained_model.pb").read_bytes()
    )
    assert model.docker_commit_id.startswith(f"{in_containers.env['EDL_REPOSITORY']}@sha256:")
    assert list((tmp_path / "records").iterdir()) == []
