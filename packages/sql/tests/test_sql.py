"""``edl data convert --from``: the rows of a query of SQLite become records."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import elasticdl
import recordio
import recordio.example
from edl.__main__ import run
from edl.core.problem import Problem
from edl_proto.errors import EdlError
from edl_sql.databases.database import Database
from edl_sql.tables.queries import QuerySource
from edl_testing.command import Done

Call = Callable[..., Done]
URL = "sqlite:///my.db"
ROWS = [("Ann", "boss", 5.5, 1), ("Bob", None, 2.25, 0), ("Köl%n", "clerk", None, None)]


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("my.db") as database:
        database.execute("CREATE TABLE employee (name TEXT, role TEXT, salary REAL, manager INT)")
        database.executemany("INSERT INTO employee VALUES (?, ?, ?, ?)", ROWS)
    database.close()

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    return call


def convert(edl: Call, query: str, *args: str, code: int = 0) -> Done:
    return edl(
        *("data", "convert", "--from", URL, "--query", query, "--output", "out", *args), code=code
    )


def examples(place: str) -> list[dict[str, Any]]:
    return [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in recordio.example.decode(record).items()
        }
        for file in recordio.expand(place)
        for record in recordio.open_source(file).read(0, recordio.open_source(file).count())
    ]


def test_integers_and_floats_in_a_column_without_a_type_are_floats(
    edl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    execute = QuerySource._execute

    def record(self: QuerySource, statement: str) -> Any:
        executed.append(statement)
        return execute(self, statement)

    monkeypatch.setattr(QuerySource, "_execute", record)
    monkeypatch.setattr("edl_sql.tables.queries._BATCH", 2)
    with sqlite3.connect("my.db") as database:
        database.execute('CREATE TABLE untyped ("a b", c)')
        database.executemany("INSERT INTO untyped VALUES (?, ?)", [(1, 1), (None, 2), (2.5, 3)])
    database.close()
    query = "SELECT * FROM untyped"
    convert(edl, query)
    assert executed == [query, query]
    expected = [{"a b": [1.0], "c": [1]}, {"c": [2]}, {"a b": [2.5], "c": [3]}]
    assert examples("out") == expected
    executed.clear()
    convert(edl, "SELECT c FROM untyped", "--output", "integers")
    assert executed == ["SELECT c FROM untyped"]


def test_rows_become_records_and_nulls_are_missing_features(edl: Call) -> None:
    convert(edl, "SELECT * FROM employee ORDER BY name -- all of them")
    assert examples("out") == [
        {"name": [b"Ann"], "role": [b"boss"], "salary": [5.5], "manager": [1]},
        {"name": [b"Bob"], "salary": [2.25], "manager": [0]},
        {"name": ["Köl%n".encode()], "role": [b"clerk"]},
    ]
    schema = json.loads(Path("out/schema.json").read_text())
    assert schema == {
        "version": 1,
        "rows": 3,
        "label": None,
        "columns": [
            {
                "name": "name",
                "type": "string",
                "feature": "bytes",
                "nulls": 0,
                "values": {"min": 1, "max": 1},
                "longest": 6,
                "vocabulary": {"size": 3, "exact": True},
            },
            {
                "name": "role",
                "type": "string",
                "feature": "bytes",
                "nulls": 1,
                "values": {"min": 1, "max": 1},
                "longest": 5,
                "vocabulary": {"size": 2, "exact": True},
            },
            {
                "name": "salary",
                "type": "float",
                "feature": "float",
                "nulls": 1,
                "values": {"min": 1, "max": 1},
                "mean": 3.875,
                "deviation": 1.625,
                "min": 2.25,
                "max": 5.5,
            },
            {
                "name": "manager",
                "type": "integer",
                "feature": "int64",
                "nulls": 1,
                "values": {"min": 1, "max": 1},
                "mean": 0.5,
                "deviation": 0.5,
                "min": 0,
                "max": 1,
            },
        ],
    }


def test_the_statement_is_sent_as_it_is(edl: Call) -> None:
    convert(
        edl,
        "WITH q AS (SELECT name AS who, salary * 2 AS twice FROM employee WHERE name LIKE '%\\%%'"
        " ESCAPE '\\' OR name = ':x') SELECT * FROM q;  ",
        *("--to", "out2"),
    )
    assert examples("out2") == [{"who": ["Köl%n".encode()]}]


def test_text_labels_are_numbered_and_files_and_parts_are_as_for_files(edl: Call) -> None:
    done = convert(
        edl,
        "SELECT role, salary FROM employee WHERE role IS NOT NULL",
        *("--label", "role", "--records-per-file", "1", "-o", "json"),
    )
    assert done.json["classes"] == {"boss": 0, "clerk": 1}
    assert examples("out") == [{"label": [0], "salary": [5.5]}, {"label": [1]}]
    assert sorted(os.listdir("out")) == [
        "labels.json",
        "part-00000.recordio",
        "part-00001.recordio",
        "schema.json",
    ]
    schema = json.loads(Path("out/schema.json").read_text())
    assert (schema["label"], schema["columns"][0]["type"]) == ("label", "string")


def test_python_converts_the_same(edl: Call) -> None:
    convert(edl, "SELECT name, salary FROM employee")
    done = elasticdl.convert_data(URL, query="SELECT name, salary FROM employee", output="two")
    assert examples("two") == examples("out")
    assert done.schema == json.loads(Path("out/schema.json").read_text())
    with pytest.raises(EdlError, match="no such table"):
        elasticdl.convert_data(URL, query="SELECT * FROM nowhere", output="three")


MANY = """
WITH RECURSIVE many (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM many WHERE x < 9001)
SELECT CASE x WHEN 9000 THEN %s ELSE x END AS x FROM many
"""
"""Rows of several fetches."""


@pytest.mark.parametrize(
    ("query", "args", "code", "words"),
    [
        (MANY % "'a'", (), 3, ["row 9000, column x", "string", "CAST"]),
        (MANY % "NULL", ("--label", "x"), 3, ["NULL", "row 9000, column x"]),
        ("SELECT * FROM nowhere", (), 3, ["no such table: nowhere", "sqlite:///my.db"]),
        ("SELECT wage FROM employee", (), 2, ["no such column: wage"]),
        ("SELEKT * FROM employee", (), 2, ["cannot parse the query", "SELEKT"]),
        ("SELECT * FROM employee WHERE", (), 2, ["cannot parse the query"]),
        (" ; ", (), 2, ["the query is empty"]),
        ("DELETE FROM employee", (), 2, ["read-only", "must be a SELECT"]),
        ("PRAGMA query_only = ON", (), 2, ["the query is not a SELECT"]),
        ("SELECT * FROM employee WHERE salary > 9", (), 3, ["returns no rows", "conditions"]),
        ("SELECT name, name FROM employee", (), 3, ["'name' twice"]),
        ("SELECT name FROM employee", ("--label", "rol"), 2, ["no such column"]),
        ("SELECT name, role FROM employee", ("--label", "role"), 3, ["NULL", "row 2", "role IS"]),
        ("SELECT name FROM employee", ("--columns", "nam"), 2, ["Did you mean name?"]),
        ("SELECT 1 AS x UNION ALL SELECT 'a'", (), 3, ["row 2, column x", "string", "CAST"]),
        ("SELECT 1e300 AS x", (), 3, ["row 1, column x", "32-bit float"]),
        ("SELECT 1 AS ''", (), 2, ["column 1", "no name"]),
        ("SELECT 1 AS x", ("--delimiter", ";"), 2, ["--delimiter do not apply"]),
        ("SELECT 1 AS x", ("--to", "out.csv"), 2, ["writes RecordIO"]),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_message(
    edl: Call, query: str, args: tuple[str, ...], code: int, words: list[str]
) -> None:
    done = convert(edl, query, *args, code=code)
    for word in words:
        assert word in done.err, done.err
    assert "Traceback" not in done.err
    assert sorted(os.listdir(".")) == ["my.db"]
    with sqlite3.connect("my.db") as database:
        assert database.execute("SELECT count(*) FROM employee").fetchone() == (3,)
    database.close()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (
            ("--from", "sqlite:///nothing.db", "--query", "SELECT 1"),
            3,
            ["does not exist", "nothing.db"],
        ),
        (
            ("--from", "sqlite:///no.txt", "--query", "SELECT * FROM t"),
            3,
            ["not an SQLite database"],
        ),
        (("--from", URL), 2, ["--from needs --query"]),
        (("--from", URL, "--query", "SELECT 1", "a.csv"), 2, ["files", "do not apply"]),
        (("--query", "SELECT 1", "my.db"), 2, ["need a database", "--from"]),
        ((), 2, ["name files"]),
        (("sqlite:///my.db",), 2, ["named with --from"]),
        (("--from", "oracle://u:hunter2@h/d", "--query", "SELECT 1"), 2, ["oracle", "PostgreSQL"]),
        (("--from", "nonsense", "--query", "SELECT 1"), 2, ["not the URL of a database"]),
        (
            ("--from", "mysql://u:a@hunter2@h/d", "--query", "SELECT 1"),
            2,
            ["one @", "%40"],
        ),
        (("--from", "mysql://u:hunter2@h:x/d", "--query", "SELECT 1"), 2, ["not the URL"]),
        (
            ("--from", "postgresql://u:hunter2@127.0.0.1:1/d", "--query", "SELECT 1"),
            3,
            ["cannot be reached", "postgresql://u@127.0.0.1:1/d", "Check host and port"],
        ),
        (
            ("--from", "mysql://u:hunter2@127.0.0.1:1/d", "--query", "SELECT 1"),
            3,
            ["cannot be reached", "mysql://u@127.0.0.1:1/d"],
        ),
        (
            ("--from", URL, "--query", "SELECT 1", "--password-file", "none"),
            2,
            ["password's file cannot be read"],
        ),
        (
            ("--from", URL, "--query", "SELECT 1", "--password-file", "no.txt"),
            2,
            ["every user of this machine may read", "chmod 600 no.txt"],
        ),
    ],
)
def test_databases_that_cannot_be_opened(
    edl: Call, args: tuple[str, ...], code: int, words: list[str]
) -> None:
    Path("no.txt").write_text("This is certainly not a database. " * 100)
    Path("no.txt").chmod(0o604)
    done = edl("data", "convert", *args, "--to", "out", code=code)
    for word in words:
        assert word in done.err, done.err
    assert "hunter2" not in done.err
    assert "Traceback" not in done.err


def test_a_secret_that_a_container_mounts_may_be_readable_for_all_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    secret.chmod(0o444)
    with pytest.raises(Problem, match="every user of this machine"):
        Database(URL, str(secret))
    monkeypatch.setattr(os, "fstatvfs", lambda file: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert "hunter2" not in Database(URL, str(secret)).shown


def test_a_key_that_may_have_lost_digits_reaches_no_row(tmp_path: Path) -> None:
    database = tmp_path / "my.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE t (id NUMERIC PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (16777216), (16777217), (3)")

    def load(key: object) -> None:
        with recordio.Writer(str(tmp_path / "p.recordio")) as writer:
            writer.write(recordio.example.encode({"id": key, "prediction": 0.5}))
        place = str(tmp_path / "p.recordio")
        elasticdl.load_data(place, to=f"sqlite:///{database}", table="t", column="p")

    with pytest.raises(EdlError, match="may have been another number"):
        load(16777217.0)
    load(16777217)
    load(3.0)
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT id FROM t WHERE p = 0.5 ORDER BY id").fetchall()
    assert found == [(3,), (16777217,)]
