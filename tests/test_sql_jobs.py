"""Functions of columns, and an evaluation: statements whose jobs run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Done

import recordio.example
from edl.__main__ import run
from edl_testing.requirements import require
from tests import database_servers
from tests.database_servers import PASSWORD, Server, execute

Call = Callable[..., Done]
EVERY = 4  # of so many patients one is predicted, the others are learned from


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))

    def call(*args: str, fails: bool = False) -> Done:
        capfd.readouterr()
        done = Done(args, run(args), *capfd.readouterr())
        assert (done.code != 0) == fails, str(done)
        assert PASSWORD not in done.out + done.err
        return done

    return call


def fill(server: Server, table: str, rows: np.ndarray, *columns: str) -> None:
    declared = ", ".join(f"{name} float8" for name in columns)
    execute(server, f"CREATE TABLE {table} (id serial PRIMARY KEY, {declared})")
    values = ", ".join(f"({', '.join(map(str, row))})" for row in rows.tolist())
    execute(server, f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}")


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Server]:
    require(database_servers.missing())
    with database_servers.mariadb() as started:
        yield started


def test_functions_of_columns_and_an_evaluation_on_mariadb(edl: Call, mariadb: Server) -> None:
    from sklearn.datasets import load_wine

    found = load_wine()
    columns = ("alcohol", "flavanoids", "color", "hue", "proline", "cultivar")
    places = [list(found.feature_names).index(n) for n in ("alcohol", "flavanoids", "hue")]
    places[2:2] = [list(found.feature_names).index("color_intensity")]
    places.append(list(found.feature_names).index("proline"))
    rows = np.column_stack([found.data[:, places], found.target])
    held_out = np.arange(len(rows)) % EVERY == 0
    fill(mariadb, "wines", rows[~held_out], *columns)
    fill(mariadb, "others", rows[held_out], *columns)
    for table in ("wines", "others"):
        execute(
            mariadb,
            f"ALTER TABLE {table} ADD COLUMN name VARCHAR(20)",
            f"UPDATE {table} SET name = CONCAT('kind ', CAST(cultivar AS INT))",
        )
    selected = "alcohol, flavanoids, color, hue, proline, name"
    common = ("sql", "--db", mariadb.url(), "--model-zoo", str(ROOT / "model_zoo"), "-o", "json")
    done = edl(
        *common,
        "-e",
        f"""
        SELECT {selected} FROM wines # those that are known
        TO TRAIN classifier.wide_and_deep.WideAndDeep
        WITH model.hidden_units=[16], train.epoch=40, train.batch_size=16
        COLUMN CROSS([BUCKET(flavanoids, [1.2, 2.2]), BUCKET(color, [3.5, 5])], 100),
               INDICATOR(BUCKET(proline, [600, 750])) FOR linear_feature_columns
        COLUMN alcohol, NUMERIC(flavanoids), color, hue,
               EMBEDDING(BUCKET(proline, [600, 750]), 4) FOR dnn_feature_columns
        LABEL name INTO wine_model;

        SELECT {selected} FROM others TO EVALUATE wine_model LABEL name INTO results;
        SELECT id, {selected} FROM others TO PREDICT others.predicted USING wine_model;
        """,
    )
    _, evaluated, predicted_ = json.loads(done.out)
    assert evaluated["rows"] == predicted_["rows"] == sum(held_out)
    query = "SELECT AVG(name = predicted) AS hits, MAX(accuracy) AS accuracy FROM others, results"
    edl("data", "convert", "--from", mariadb.url(), "--query", query, "--to", "right.recordio")
    (record,) = recordio.open_source("right.recordio").read(0, 1)
    right = recordio.example.decode(record)
    print(f"accuracy: {right['accuracy'][0]:.3f}")
    assert right["hits"][0] == pytest.approx(right["accuracy"][0], abs=1e-3)
    assert right["accuracy"][0] == pytest.approx(evaluated["metrics"]["accuracy"])
    assert right["accuracy"][0] > 0.85
