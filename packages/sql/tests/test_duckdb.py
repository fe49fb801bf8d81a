"""``--from duckdb://``: queries of files, without a server."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

import recordio
import recordio.example
from edl.__main__ import run
from edl.core.job_result import JobResult
from edl_proto.errors import EdlError
from edl_sql.databases.database import Database
from edl_sql.tables.catalog import column_types, primary_keys, table_names
from edl_sql.tables.queries import column_names
from edl_testing.command import Done

Call = Callable[..., Done]
VALUES = """
    SELECT 7 AS whole, 2.5::DOUBLE AS real, 1.25::DECIMAL(5, 2) AS price, 'Köln' AS town,
        true AS yes,
        DATE '1970-01-03' AS day, TIMESTAMP '1970-01-01 00:00:01' AS moment, [1, 2] AS list,
        TIMESTAMPTZ '1970-01-01 01:00:00+01' AS zoned,
        '\\xAA'::BLOB AS octets, NULL::INT AS nothing
"""


@pytest.fixture
def convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)

    def call(query: str, *args: str, url: str = "duckdb://", code: int = 0) -> Done:
        capsys.readouterr()
        command = ("data", "convert", "--from", url, "--query", query, "--to", "out", *args)
        done = Done(command, run(command), *capsys.readouterr())
        assert done.code == code, str(done)
        assert (code == 0) == os.path.exists("out")
        return done

    return call


def test_values_of_every_type_become_features(convert: Call) -> None:
    convert(VALUES)
    source = recordio.open_source("out/part-00000.recordio")
    (record,) = source.read(0, source.count())
    found = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in recordio.example.decode(record).items()
    }
    assert found == {
        "whole": [7],
        "real": [2.5],
        "price": [1.25],
        "town": ["Köln".encode()],
        "yes": [1],
        "day": [2],
        "moment": [1_000_000],
        "zoned": [0],
        "list": [1, 2],
        "octets": [b"\xaa"],
    }
    types = {
        each["name"]: each["type"]
        for each in json.loads(Path("out/schema.json").read_text())["columns"]
    }
    assert types["price"] == "decimal"
    assert types["moment"] == "timestamp"


def test_files_are_joined_and_labels_numbered(convert: Call) -> None:
    Path("people.csv").write_text("id,role\n1,clerk\n2,boss\n3,clerk\n")
    pay = "SELECT i AS id, i * 10.0 AS pay FROM range(1, 4) AS t(i)"
    duckdb.connect().execute(f"COPY ({pay}) TO 'pay.parquet'")
    query = "SELECT pay, role FROM 'people.csv' JOIN 'pay.parquet' USING (id) WHERE pay > 10"
    done = convert(query, "--label", "role", "-o", "json")
    assert done.json["classes"] == {"boss": 0, "clerk": 1}
    assert column_names(Database("duckdb://"), query) == ["pay", "role"]


def test_a_file_of_duckdb_is_only_read(convert: Call) -> None:
    with duckdb.connect("my.duckdb") as database:
        database.execute("CREATE TABLE t AS SELECT range AS a FROM range(10000)")
    url = "duckdb:///my.duckdb"
    convert("DROP TABLE t", url=url, code=2)
    convert("SELECT * FROM t", url=url)
    assert recordio.open_source("out/part-00000.recordio").count() == 10_000


def test_what_duckdb_says_of_its_tables(convert: Call) -> None:
    with duckdb.connect("my.duckdb") as database:
        database.execute('CREATE TABLE People (id INT PRIMARY KEY, "my role" VARCHAR)')
        database.execute("CREATE VIEW a AS SELECT * FROM People")
        database.execute("CREATE SCHEMA s; CREATE TABLE s.t (k INT, l INT, PRIMARY KEY (k, l))")
    Path("people.csv").write_text("id,role\n1,clerk\n")
    database = Database("duckdb:///my.duckdb")
    assert table_names(database) == ["People", "a"]
    assert table_names(database, "S") == ["t"]
    with pytest.raises(EdlError, match="there is no schema shop"):
        table_names(database, "shop")
    assert column_types(database, "people") == [["id", "INTEGER"], ["my role", "VARCHAR"]]
    assert column_types(database, "s.t") == [["k", "INTEGER"], ["l", "INTEGER"]]
    assert column_types(database, '"people.csv"') == [["id", "BIGINT"], ["role", "VARCHAR"]]
    assert column_types(database, "none") == []
    assert primary_keys(database, "SELECT * FROM PEOPLE JOIN s.t ON id = k") == {"id"}
    assert primary_keys(database, "SELECT * FROM 'people.csv' JOIN main.people USING (id)") == {
        "id"
    }
    assert primary_keys(database, "SELECT * FROM t") == set()


def test_a_timestamp_is_known_to_be_rounded(
    convert: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "SELECT TIMESTAMP '2020-01-01' + INTERVAL (i) DAY AS day, i AS y FROM range(9) t(i)"
    monkeypatch.setattr(
        "edl.api.train", lambda output, **_: os.mkdir(output) or JobResult("j", "S")
    )
    os.mkdir("models")
    assert run(["sql", "--db", "duckdb://", "-e", f"{rows} TRAIN DNNRegressor INTO m"]) == 0
    told = capsys.readouterr().err
    assert "day: a model knows a timestamp to two minutes only" in told
    assert "EXTRACT(HOUR FROM day)" in told


@pytest.mark.parametrize(
    ("query", "url", "code", "words"),
    [
        ("COPY (SELECT 1 AS a) TO 'x.csv'", "duckdb://", 2, "must be a SELECT"),
        ("SELECT 1 AS a; SELECT 2 AS a", "duckdb://", 2, "must be a SELECT"),
        ("SELECT * FROM nowhere", "duckdb://", 3, "there is no such table"),
        ("SELECT * FROM 'no.parquet'", "duckdb://", 3, "no.parquet"),
        ("SELECT b FROM (SELECT 1 AS a)", "duckdb://", 2, "there is no such column"),
        ("SELEKT 1", "duckdb://", 2, "cannot parse the query"),
        ("SELECT {'a': 1} AS a", "duckdb://", 3, "row 1, column a"),
        ("SELECT 1 AS a", "duckdb:///no.duckdb", 3, "DuckDB database file does not exist"),
    ],
)
def test_what_is_refused(convert: Call, query: str, url: str, code: int, words: str) -> None:
    done = convert(query, url=url, code=code)
    assert words in done.err
    assert "Traceback" not in done.err
    assert not Path("x.csv").exists()


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1 AS id PREDICT t.p USING m", "SELECT 1 AS id TO EVALUATE m INTO t"],
)
def test_statements_cannot_write_into_it(
    convert: Call, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    model = Path("models/m")
    model.mkdir(parents=True)
    about = {"statement": "", "label": "", "classes": [], "is_classifier": False, "texts": {}}
    (model / "statement.json").write_text(json.dumps(about))
    assert run(["sql", "--db", "duckdb://", "-e", statement]) == 2
    assert "edl only reads DuckDB" in capsys.readouterr().err


def test_a_file_of_sqlite_needs_no_extension_of_duckdb(convert: Call) -> None:
    with sqlite3.connect("my.db") as database:
        database.execute("CREATE TABLE t (a INT)")
    database.close()
    refused = convert("SELECT * FROM t", url="duckdb:///my.db", code=3)
    assert "a database of SQLite" in refused.err
    assert "Write sqlite:///my.db" in refused.err
