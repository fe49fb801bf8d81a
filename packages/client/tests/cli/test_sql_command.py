"""``edl sql``: what is refused before a job starts, and how a model was trained."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

import recordio
import recordio.example
from edl.__main__ import run
from edl.conversion.predictions import Predictions
from edl.core.columns import Cell

Call = Callable[..., Done]


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people and a model of them."""
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("my.db") as database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, role TEXT, wage REAL)")
        database.execute("INSERT INTO people VALUES (1, 'boss', 5.5), (2, 'clerk', 2.5)")
        database.execute("CREATE TABLE keyless (id INT, role TEXT)")
        database.execute("INSERT INTO keyless VALUES (1, 'boss')")
    database.close()
    model = Path("models/wages")
    model.mkdir(parents=True)
    about = {"statement": "SELECT … INTO wages", "label": "wage", "classes": []}
    about |= {"is_classifier": False, "texts": {"role": True}}
    (model / "statement.json").write_text(json.dumps(about))
    Path("model_zoo").mkdir()

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(["sql", "--db", "sqlite:///my.db", *args]), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    return call


def test_show_train(sql: Call) -> None:
    assert sql("-e", "SHOW TRAIN wages").out == "SELECT … INTO wages\n"
    Path("s.sql").write_text("SHOW TRAIN wages; SHOW TRAIN wages;")
    assert len(json.loads(sql("s.sql", "-o", "json").out)) == 2


def test_a_file_of_another_encoding_is_refused(sql: Call) -> None:
    Path("s.sql").write_bytes("SHOW TRAIN wages;".encode("utf-16"))
    assert "not UTF-8\n  where: s.sql" in sql("s.sql", code=3).err


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT * FROM people TRAIN regressor.DNN", "INTO\n  where: line 1, column 22\n"),
        ("SELECT * FROM people TRAIN a.B INTO wages", "there is a model wages already"),
        ("SELECT * FROM people TRAIN a.B LABEL wages INTO m", "Did you mean wage?"),
        ("SELECT * FROM people TRAIN a.B COLUMN rol INTO m", "Did you mean role?"),
        ("SELECT role FROM people TRAIN regressor.DNN INTO m", "the label role is a text"),
        ("SELECT * FROM none TRAIN a.B INTO m", "no such table"),
        ("SELECT id FROM people PREDICT people.p USING wages", "there is no column role"),
        ("SELECT role FROM people PREDICT people.p USING wages", "no selected column identifies"),
        ("SELECT * FROM keyless PREDICT keyless.p USING wages", "no selected column identifies"),
        ("SELECT id, role FROM people PREDICT none.p USING wages", "there is no table none"),
        ("SELECT id, 7 AS role FROM people PREDICT people.p USING wages", "has numbers; the model"),
        ("SELECT id FROM people PREDICT people.p USING wage", "Did you mean wages?"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_starts(
    sql: Call, statement: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_job(**_: object) -> None:
        raise AssertionError("a job was started")

    monkeypatch.setattr("edl.api.train", no_job)
    monkeypatch.setattr("edl.api.predict", no_job)
    failed = run(["sql", "--db", "sqlite:///my.db", "-e", statement])
    assert failed != 0
    assert words in sql("-e", statement, code=failed).err


def test_predicted_classes_are_written_by_their_names(tmp_path: Path) -> None:
    place = str(tmp_path / "p.recordio")
    with recordio.Writer(place) as writer:
        for number in (1, 0):
            writer.write(recordio.example.encode({"id": number, "prediction": number}))
    predictions = Predictions(place, "id", "prediction", ["cat", "dog"])
    assert predictions.kind() is Cell.TEXT
    assert [item[1:] for item in predictions.items(Cell.TEXT)] == [(1, "dog"), (0, "cat")]


def test_statements_come_from_one_place(sql: Call) -> None:
    assert "not both" in sql(code=2).err
    assert "not both" in sql("s.sql", "-e", "SHOW TRAIN wages", code=2).err
