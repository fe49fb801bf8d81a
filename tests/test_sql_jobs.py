"""The statements of the design document, from the rows of a database to a column of a table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Done

import recordio.example
from edl.__main__ import run
from tests import database_servers
from tests.database_servers import PASSWORD, Server, execute

Call = Callable[..., Done]
EVERY = 4  # of so many patients one is predicted, the others are learned from
FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    missing = database_servers.missing()
    if missing and not os.environ.get("CI"):
        pytest.skip(f"missing: {missing}")
    with database_servers.postgresql() as started:
        yield started


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


def patients() -> np.ndarray:
    """Ten measurements and the progression of each patient, as in scikit-learn."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes(scaled=False)
    return np.column_stack([found.data, found.target])


def fill(server: Server, table: str, rows: np.ndarray, *columns: str) -> None:
    declared = ", ".join(f"{name} float8" for name in columns)
    execute(server, f"CREATE TABLE {table} (id serial PRIMARY KEY, {declared})")
    values = ", ".join(f"({', '.join(map(str, row))})" for row in rows.tolist())
    execute(server, f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}")


def predicted(edl: Call, url: str) -> np.ndarray:
    query = "SELECT predicted_progression AS y FROM testdata ORDER BY id"
    edl("data", "convert", "--from", url, "--query", query, "--to", "written.recordio")
    source = recordio.open_source("written.recordio")
    records = source.read(0, source.count())
    return np.array([float(recordio.example.decode(record)["y"][0]) for record in records])


def test_a_statement_becomes_a_model_and_a_column(edl: Call, server: Server) -> None:
    rows, url = patients(), server.url()
    held_out = np.arange(len(rows)) % EVERY == 0
    fill(server, "patients", rows[~held_out], *FEATURES, "progression")
    fill(server, "testdata", rows[held_out][:, :-1], *FEATURES)
    selected = ", ".join(FEATURES)
    common = ("sql", "--db", url, "--model-zoo", str(ROOT / "model_zoo"))
    trained = edl(
        *common,
        "-e",
        f"SELECT {selected}, progression FROM patients TRAIN regressor.DNN"
        " WITH hidden_units=[10, 100], learning_rate=0.01, train.epoch=20 INTO my_model;",
    )
    assert "the label is progression, the last column" in trained.err
    done = edl(
        *common,
        *("-o", "json", "-e"),
        f"SELECT id, {selected} FROM testdata"
        " PREDICT testdata.predicted_progression USING my_model;",
    )
    (result,) = json.loads(done.out)
    assert (result["key"], result["rows"], result["other_rows"]) == ("id", sum(held_out), 0)
    found, expected = predicted(edl, url), rows[held_out][:, -1]
    assert len(found) == len(expected)
    r_squared = 1 - np.square(found - expected).sum() / np.square(expected - expected.mean()).sum()
    print(f"R squared: {r_squared:.3f}")
    assert r_squared > 0.25
    shown = edl(*common, "-e", "SHOW TRAIN my_model").out
    assert "TRAIN regressor.DNN" in shown
    for statement, words in (
        (
            f"SELECT {selected} FROM testdata PREDICT testdata.p USING my_model",
            "no selected column",
        ),
        (
            f"SELECT id, {selected} FROM testdata PREDICT no.p USING my_model",
            "there is no table no",
        ),
    ):
        assert words in edl(*common, "-e", statement, fails=True).err


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Server]:
    missing = database_servers.missing()
    if missing and not os.environ.get("CI"):
        pytest.skip(f"missing: {missing}")
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
