"""``edl data load``: predictions become a column of a table of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest

import elasticdl
import recordio
import recordio.example
from edl.__main__ import run
from edl_testing.command import Done

Call = Callable[..., Done]
URL = "sqlite:///my.db"


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.chdir(tmp_path)
    sql(
        'CREATE TABLE people (id INTEGER PRIMARY KEY, "first name" TEXT, age INT, note TEXT)',
        "INSERT INTO people VALUES (1, 'Ann', 30, 'x'), (2, 'Bob', 41, 'y'), (3, 'Cy', 41, NULL)",
        "CREATE VIEW adults AS SELECT * FROM people",
    )

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        assert "Traceback" not in done.err
        return done

    return call


def sql(*statements: str) -> list[Any]:
    with sqlite3.connect("my.db") as database:
        rows = [database.execute(statement).fetchall() for statement in statements]
    database.close()
    return rows[-1]


def predictions(*rows: Mapping[str, Any], place: str = "p.recordio") -> None:
    with recordio.Writer(place) as writer:
        for row in rows:
            writer.write(recordio.example.encode(row))


def load(edl: Call, *args: str, place: str = "p.recordio", code: int = 0) -> Done:
    return edl(
        *("data", "load", "--from", place, "--to", URL, "--table", "people", "--column", "salary"),
        *args,
        code=code,
    )


def columns() -> list[str]:
    return [f"{name} {kind}" for _, name, kind, *_ in sql("PRAGMA table_info(people)")]


def test_each_prediction_goes_into_the_row_of_its_key(edl: Call) -> None:
    predictions({"id": 3, "prediction": 0.5}, {"id": 1, "prediction": 1.5})
    done = load(edl, "-o", "json")
    assert done.json == {
        "table": "people",
        "column": "salary",
        "rows": 2,
        "other_rows": 1,
        "column_added": True,
    }
    assert sql("SELECT id, salary, age FROM people") == [(1, 1.5, 30), (2, None, 41), (3, 0.5, 41)]
    assert columns()[-1] == "salary DOUBLE"


def test_to_load_again_changes_nothing_and_new_predictions_replace_old_ones(edl: Call) -> None:
    predictions({"id": 1, "prediction": 7}, {"id": 2, "prediction": 8})
    load(edl)
    before = sql("SELECT * FROM people")
    assert not load(edl, "-o", "json").json["column_added"]
    assert sql("SELECT * FROM people") == before
    predictions({"id": 2, "prediction": 9}, place="new.recordio")
    load(edl, place="new.recordio")
    assert sql("SELECT id, salary FROM people") == [(1, 7), (2, 9), (3, None)]


@pytest.mark.parametrize(
    ("name", "text", "salaries"),
    [
        ("p.csv", "id,prediction\n1,2\n2,3.5\n", [2.0, 3.5, None]),
        ("p.csv", "id,prediction\n1,2\n2,three\n", ["2", "three", None]),
        ("p.jsonl", '{"id": 2, "prediction": [1.5]}\n{"id": 1, "prediction": 2}\n', [2, 1.5, None]),
    ],
)
def test_all_formats_of_predictions(edl: Call, name: str, text: str, salaries: list[Any]) -> None:
    Path(name).write_text(text)
    load(edl, place=name)
    assert [salary for (salary,) in sql("SELECT salary FROM people")] == salaries


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl", "p.recordio"])
def test_predictions_in_a_store(edl: Call, name: str) -> None:
    store = fsspec.filesystem("memory")
    Path("p.csv").write_text("id,prediction\n1,2.5\n")
    Path("p.jsonl").write_text('{"id": 1, "prediction": 2.5}\n')
    predictions({"id": 1, "prediction": 2.5})
    store.put_file(name, f"/bucket/{name}")
    load(edl, place=f"memory://bucket/{name}")
    assert sql("SELECT salary FROM people") == [(2.5,), (None,), (None,)]
    store.pipe_file("/bucket/p.csv", b"id,prediction\n1\n")
    told = load(edl, place="memory:///bucket/p.csv", code=3).err
    store.rm("/bucket", recursive=True)
    assert "prediction is empty" in told
    assert "memory:///bucket/p.csv:2" in told


def test_parquet_and_a_key_of_texts_in_a_column_with_a_space(edl: Call) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = {"first name": ["Bob", "Ann"], "score": [1.0, 2.0]}
    pyarrow.parquet.write_table(pyarrow.table(rows), "p.parquet")
    load(edl, "--key", "first name", "--prediction", "score", place="p.parquet")
    assert sql("SELECT salary FROM people") == [(2.0,), (1.0,), (None,)]


def test_python_loads_the_same(edl: Call) -> None:
    predictions({"id": 1, "prediction": 7})
    done = elasticdl.load_data("p.recordio", to=URL, table="people", column="salary")
    assert (done.rows, done.others, done.column_added) == (1, 2, True)
    assert sql("SELECT salary FROM people WHERE id = 1") == [(7,)]


GOOD = {"id": 1, "prediction": 1.5}


@pytest.mark.parametrize(
    ("rows", "args", "code", "words"),
    [
        ([], (), 3, ["no predictions to load"]),
        ([GOOD], ("--table", "peopel"), 3, ["no such table", "Did you mean people?"]),
        ([GOOD], ("--key", "age"), 3, ["--key age", "no such column or feature", "--keep age"]),
        ([{"no": 1, "prediction": 1}], ("--key", "no"), 2, ["--key no", "the table has no such"]),
        ([GOOD], ("--prediction", "out"), 3, ["--prediction out", "They have id, prediction"]),
        ([GOOD], ("--column", "id"), 2, ["the column id identifies the rows"]),
        ([GOOD], ("--column", "age"), 2, ["the column age is of type INTEGER", "floats"]),
        ([GOOD], ("--column", "note"), 2, ["the column note is of type TEXT", "floats"]),
        ([GOOD, GOOD], (), 3, ["two predictions have the same id"]),
        ([GOOD, {"id": 9, "prediction": 1.0}], (), 3, ["1 of 2 predictions", "id 9"]),
        ([{"age": 41, "prediction": 1}], ("--key", "age"), 3, ["age is not unique", "2 rows"]),
        ([{"id": 1, "prediction": [0.1, 0.9]}], (), 3, ["2 values", "argmax"]),
        ([GOOD, {"id": 2}], (), 3, ["record 1", "prediction"]),
        ([{"id": "one", "prediction": 1}], (), 3, ["id is 'one'", "cannot hold"]),
        ([GOOD], ("--table", "adults"), 3, ["the database reports", "view"]),
    ],
)
def test_what_does_not_fit_changes_nothing(
    edl: Call, rows: Sequence[Mapping[str, Any]], args: Sequence[str], code: int, words: list[str]
) -> None:
    predictions(*rows)
    before = (columns(), sql("SELECT * FROM people"))
    done = load(edl, *args, code=code)
    for word in words:
        assert word in done.err, done.err
    assert (columns(), sql("SELECT * FROM people")) == before


def test_an_error_in_the_last_step_takes_back_the_column(edl: Call) -> None:
    predictions({"id": 1, "prediction": 1}, {"id": 2, "prediction": 2})
    sql(
        "CREATE TRIGGER refusal BEFORE UPDATE ON people WHEN NEW.id = 2"
        " BEGIN SELECT RAISE(ABORT, 'two is locked'); END"
    )
    before = columns()
    assert "two is locked" in load(edl, code=3).err
    assert columns() == before


def test_an_error_as_json(edl: Call) -> None:
    predictions(GOOD)
    done = load(edl, "--table", "nowhere", "-o", "json", code=3)
    assert json.loads(done.out)["error"]["code"] == "DATA_NOT_FOUND"
