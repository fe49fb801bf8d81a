"""``edl sql``: what is refused before a job starts, and what is written for whom."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sql_command import Call, caller, prepare_folder

import recordio
import recordio.example
from edl.__main__ import run
from edl.core.job_result import JobResult
from edl.core.model_file import learns_label
from edl_convert.column_types import Cell
from edl_proto.errors import EdlError
from edl_sql.language.parser import parse_statements
from edl_sql.language.selection import Selection, select
from edl_sql.language.statements import Train
from edl_sql.tables.predictions import Predictions


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people and a model of them."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    return caller(capsys)


def test_show_train(sql: Call) -> None:
    assert sql("-e", "SHOW TRAIN wages").out == "SELECT … INTO wages\n"
    Path("s.sql").write_text("SHOW TRAIN wages; SHOW TRAIN wages;")
    assert len(json.loads(sql("s.sql", "-o", "json").out)) == 2


def test_which_models_there_are(sql: Call) -> None:
    shown = sql("-e", "SHOW MODELS").out.splitlines()
    assert [line.split() for line in shown] == [
        ["MODEL", "LEARNED", "BY", "LABEL", "FROM"],
        ["wages", "wage", "role"],
    ]
    assert sql("-e", "SHOW MODELS", "-o", "name").out == "wages\n"
    (told,) = json.loads(sql("-e", "DESCRIBE wages", "-o", "json").out)
    assert (told["label"], told["columns"]) == ("wage", {"role": "text"})
    assert "from:       role (text)\n" in sql("-e", "DESCRIBE wages").out
    assert "Did you mean wages?" in sql("-e", "DESCRIBE wage", code=4).err


def test_which_tables_there_are(sql: Call) -> None:
    with sqlite3.connect("my.db") as database:
        database.execute('CREATE TABLE "my people" (role TEXT)')
        database.execute("CREATE VIEW a AS SELECT * FROM people")
    database.close()
    assert sql("-e", "SHOW TABLES").out.split("\n")[1:-1] == ["a", "keyless", "my people", "people"]
    assert sql("-e", "DESCRIBE people").out.split()[-2:] == ["wage", "REAL"]
    assert sql("-e", 'DESCRIBE main."my people"').out.split()[-2:] == ["role", "TEXT"]
    told = sql("-e", "DESCRIBE wage", code=4).err
    assert "no statement has trained a model wage here" in told
    assert "Did you mean wages? SHOW TABLES; lists the tables." in told
    assert "there is no table no such" in sql("-e", 'DESCRIBE "no such"', code=3).err
    assert "people" in sql("-e", "SHOW TABLES FROM main").out


@pytest.mark.parametrize("place", ["models", "memory://bucket/dropped"])
def test_a_model_is_dropped(sql: Call, place: str) -> None:
    if "://" in place:
        about = Path("models/wages/statement.json").read_bytes()
        fsspec.filesystem("memory").pipe("/bucket/dropped/wages/statement.json", about)
    at = ("--models", place)
    assert sql(*at, "-e", "DROP MODEL wages").out == "the model wages is removed\n"
    assert "wages" not in sql(*at, "-e", "SHOW MODELS").out
    assert (
        "no statement has trained a model wages" in sql(*at, "-e", "DROP MODEL wages", code=4).err
    )
    assert sql(*at, "-e", "DROP MODEL IF EXISTS wages").out == "there is no model wages\n"
    assert sql(*at, "-e", "SHOW MODELS").out.endswith("no models\n")
    if "://" not in place:
        assert not list(Path("models").glob("*wages*"))


def test_what_statements_show_is_there_although_the_next_one_fails(sql: Call) -> None:
    failed = sql("-e", "SELECT role FROM people; DROP MODEL wages; DROP MODEL wages", code=4)
    assert failed.out == "role\nboss\nclerk\nthe model wages is removed\n"
    assert "no statement has trained a model wages here" in failed.err


def test_rows_are_shown(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT id, role, NULL AS x FROM people ORDER BY id"
    assert sql("-e", query).out == "id  role   x\n 1  boss   NULL\n 2  clerk  NULL\n"
    (told,) = json.loads(sql("-e", query, "-o", "json").out)
    assert told == {"columns": ["id", "role", "x"], "rows": [[1, "boss", None], [2, "clerk", None]]}
    monkeypatch.setattr("edl_sql.statement_runner.MAX_ROWS", 1)
    done = sql("-e", query)
    assert "only the first 1 rows are shown" in done.err
    assert "clerk" not in done.out
    assert sql("-e", "SELECT id FROM people WHERE id > 9").out == "id\nno rows\n"
    assert "read-only" in sql("-e", "WITH x AS (SELECT 1) DELETE FROM people", code=2).err


def test_a_file_of_another_encoding_is_refused(sql: Call) -> None:
    Path("s.sql").write_bytes("SHOW TRAIN wages;".encode("utf-16"))
    assert "not UTF-8\n  where: s.sql" in sql("s.sql", code=3).err
    assert "cannot be read: No such file" in sql("none.sql", code=3).err


def test_a_file_of_windows(sql: Call) -> None:
    Path("s.sql").write_bytes(b"\xef\xbb\xbfSHOW TRAIN\r\n wages;\r\n")
    assert sql("s.sql").out == "SELECT … INTO wages\n"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT * FROM people TRAIN regressor.DNN", "INTO\n  where: line 1, column 22\n"),
        ("SELECT * FROM people TRAIN a.B INTO wages", "there is a model wages already"),
        ("SELECT * FROM people TRAIN a.B LABEL wages INTO m", "Did you mean wage?"),
        ("SELECT * FROM people TRAIN a.B COLUMN rol INTO m", "Did you mean role?"),
        ("SELECT id, role FROM people TRAIN regressor.DNN INTO m", "the label role is a text"),
        ("SELECT * FROM none TRAIN a.B INTO m", "no such table"),
        ("SELECT id FROM people PREDICT people.p USING wages", "there is no column role"),
        ("SELECT id, role FROM people PREDICT no.no.p USING wages", "unknown database no"),
        ("SELECT id, 7 AS role FROM people PREDICT people.p USING wages", "has numbers; the model"),
        ("SELECT id FROM people PREDICT people.p USING wage", "Did you mean wages?"),
        ("SELECT * FROM people TRAIN a.B COLUMN BUCKET(ag, [1]) INTO m", "there is no column ag"),
        ("SELECT * FROM people TO EVALUATE wage", "Did you mean wages?"),
        ("SELECT role FROM people TO EVALUATE wages", "there is no column wage"),
        ("SELECT wage FROM people TO EVALUATE wages", "there is no column role"),
        ("SELECT role, wage FROM people TO EVALUATE wages LABEL pay", "there is no column pay"),
        ("SELECT * FROM people TO EVALUATE wages INTO people", "people has no column model"),
        ("SELECT * FROM people TRAIN none.DNN INTO m", "names no file of the model zoo"),
        ("SELECT * FROM people TRAIN regressor.DNM INTO m", "Did you mean regressor.DNN?"),
        (
            "SELECT id, wage FROM people TRAIN classifier.DNN INTO m",
            "wage is not a class: its type is",
        ),
        ("SELECT id, id - 9 AS x FROM people TRAIN classifier.DNN INTO m", "least value is -8"),
        ("SELECT wage FROM people TRAIN net.M INTO m", "no column to learn wage from"),
        ("SELECT * FROM people TRAIN net.M COLUMN wage INTO m", "no column to learn wage from"),
        ("SELECT * FROM people PREDICT people.role USING wages", "predicts from role, which"),
        ("SELECT * FROM people PREDICT people.id USING wages", "column id identifies the rows"),
        ("SELECT NULL AS x, wage FROM people TRAIN net.M INTO m", "column x has no values at all"),
        ("SELECT 9e999 AS x, wage FROM people TRAIN net.M INTO m", "x has infinities or NaN"),
        ("SELECT id, wage FROM people TRAIN net.M WITH unit=2 INTO m", "Did you mean units?"),
        ("SELECT id, wage FROM none TRAIN net.M WITH x=2 INTO m", "net.M takes no parameter x"),
        (
            "SELECT * FROM people TRAIN net.M WITH rate='abc' INTO m",
            "rate is a text; net.M expects",
        ),
        ("SELECT * FROM people TRAIN net.M WITH units=1.5 INTO m", "expects an integer"),
        ("SELECT * FROM people TRAIN net.M WITH widths=5 INTO m", "expects a list of integers"),
        ("SELECT * FROM people TRAIN net.M WITH widths=['a'] INTO m", "begins with a text; net.M"),
        (
            "SELECT * FROM people TRAIN net.M WITH validation.metrics='Acuracy' INTO m",
            "has a metric 'Acuracy'",
        ),
        (
            "SELECT * FROM people TRAIN net.M WITH validation.metrics='closenes' INTO m",
            "Did you mean closeness?",
        ),
        (
            "SELECT * FROM people TRAIN net.M WITH validation.metrics='mae,closeness' INTO m",
            "has a metric 'closeness'",
        ),
        (
            "SELECT id, role FROM people UNION ALL SELECT 1, 'x' PREDICT people.p USING wages",
            "id is not unique: 2 selected rows have id 1",
        ),
        (
            "SELECT id, role FROM people UNION ALL SELECT NULL, 'x' PREDICT people.p USING wages",
            "the key id of a selected row is NULL",
        ),
        (
            "SELECT id + 1 AS id, role FROM people PREDICT people.p USING wages",
            "a selected row has id 3, and no row of people has it",
        ),
        ("SELECT id, wage FROM people TRAIN", "TRAIN must be followed by a name"),
        ("SELECT * FROM people WHERE id > 9 TRAIN a.B INTO m", "the query returns no rows"),
        ("SELECT * FROM people WHERE id > 9 TO EVALUATE wages", "the query returns no rows"),
        (
            "SELECT * FROM people WHERE id > 9 PREDICT people.p USING wages",
            "the query returns no rows",
        ),
        ("SELECT role, NULL AS wage FROM people TO EVALUATE wages", "the label is NULL"),
        ("SELECT 'x' AS role, x'00' AS wage TRAIN a.B LABEL role COLUMN wge INTO m", "mean wage?"),
        ("SELECT role, json('{') AS wage FROM people TRAIN a.B INTO m", "the database reports"),
        ("SELECT wage, role, wage FROM people TRAIN a.B INTO m", "twice"),
        ("SELEKT * FROM people TRAIN a.B INTO m", "this is not a SELECT"),
        ("SELECT * FROM people PREDICT people.p USING damaged", "cannot be read"),
        ("SELECT * FROM people PREDICT people.p USING deep", "cannot be read"),
        ("SHOW TRAIN incomplete", "cannot be read"),
        ("SELECT * FROM people TO EVALUATE foreign", "cannot be read"),
        ("SHOW TRAIN a_list", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_starts(
    sql: Call, statement: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_job(**_: object) -> None:
        raise AssertionError("a job was started")

    monkeypatch.setattr("edl.api.train", no_job)
    monkeypatch.setattr("edl.api.predict", no_job)
    monkeypatch.setattr("edl.api.evaluate", no_job)
    failed = run(["sql", "--db", "sqlite:///my.db", "-e", statement])
    assert failed != 0
    assert words in sql("-e", statement, code=failed).err


@pytest.mark.parametrize(
    ("statement", "marked"),
    [
        ("SELECT * FROM people TRAIN a.B INTO ^wages", "there is a model wages"),
        ("SELECT * FROM people TRAIN ^a.C INTO m", "a.py has no C"),
        ("SELECT * FROM people TRAIN a.B LABEL ^wages INTO m", "no column wages"),
        ("SELECT * FROM people TRAIN a.B COLUMN id, ^rol INTO m", "no column rol"),
        (
            "SELECT * FROM people TRAIN a.B COLUMN ^rol FOR x COLUMN id FOR y INTO m",
            "no column rol",
        ),
        ("SELECT id, ^role FROM people TRAIN regressor.DNN INTO m", "the label role is a text"),
        ("SELECT id, role FROM people TRAIN regressor.DNN LABEL ^role INTO m", "role is a text"),
        ("SELECT * FROM ^none TRAIN a.B INTO m", "no such table"),
        ("SELECT\n  id, ^rol\nFROM people\nTRAIN a.B INTO m", "no such column"),
        ("SELECT ^WHERE id FROM people TRAIN a.B INTO m", "syntax error"),
        ("^SELECT id FROM people PREDICT people.p USING wages", "no column role"),
        ("SELECT id, role FROM people PREDICT ^no.no.p USING wages", "unknown database no"),
        ("SELECT * FROM people PREDICT ^people.role USING wages", "predicts from role"),
        ("SELECT role, 7 AS x FROM people PREDICT ^people.p USING wages", "no column x to find"),
        ("SELECT id, 7 AS ^role FROM people PREDICT people.p USING wages", "has numbers"),
        ("SELECT 1 AS ^id, role FROM people PREDICT people.p USING wages", "not unique"),
        ("SELECT * FROM people PREDICT people.p USING ^wage", "Did you mean wages?"),
        ("SELECT * FROM people TO EVALUATE ^wage", "Did you mean wages?"),
        ("SELECT role, wage FROM people TO EVALUATE wages LABEL ^pay", "no column pay"),
        ("SELECT * FROM people TO EVALUATE wages INTO ^people", "has no column model"),
        ("SELECT NULL AS ^x, wage FROM people TRAIN net.M INTO m", "x has no values"),
        ("SELECT * FROM people TRAIN net.M WITH rate=1, ^unit=2 INTO m", "no parameter unit"),
        ("SELECT * FROM people TRAIN net.M WITH train.epoch=2, ^units='a' INTO m", "a text"),
        (
            "SELECT * FROM people TRAIN net.M WITH validation.^metrics='Acuracy' INTO m",
            "has a metric 'Acuracy'",
        ),
        ("SHOW TRAIN ^wage", "Did you mean wages?"),
    ],
)
def test_an_error_points_at_its_place(sql: Call, statement: str, marked: str) -> None:
    """The mark is in the statement here."""
    before, after = statement.split("^")
    line = (before + after).split("\n")[before.count("\n")]
    column = len(before.rpartition("\n")[2])
    code = run(["sql", "--db", "sqlite:///my.db", "-e", before + after])
    told = sql("-e", before + after, code=code).err
    assert code
    assert marked in told
    assert f"line {before.count(chr(10)) + 1}, column {column + 1}\n" in told
    lines = told.split("\n")
    mark = next(number for number, each in enumerate(lines) if each.strip() == "^")
    shown, at = lines[mark - 1], lines[mark].index("^")
    assert "…" in shown or shown.strip().startswith(line.strip()[:20])
    assert shown[at:].startswith(after.split("\n")[0][:30].rstrip())


def test_the_second_of_two_statements_is_shown_where_it_is(sql: Call) -> None:
    told = sql("-e", "SHOW TRAIN wages;\nSHOW TRAIN wage", code=4).err
    assert "line 2, column 12\n      SHOW TRAIN wage\n                 ^" in told


def test_predicted_classes_are_written_by_their_names(tmp_path: Path) -> None:
    place = str(tmp_path / "p.recordio")
    with recordio.Writer(place) as writer:
        for number in (1, 0):
            writer.write(recordio.example.encode({"id": number, "prediction": number}))
    predictions = Predictions(place, "id", "prediction", ["cat", "dog"])
    assert predictions.kind() is Cell.TEXT
    assert [item[1:] for item in predictions.items(Cell.TEXT)] == [(1, "dog"), (0, "cat")]
    numbered = Predictions(place, "id", "prediction", ["007", "8"])
    assert numbered.kind() is Cell.TEXT
    assert [item[2] for item in numbered.items(Cell.TEXT)] == ["8", "007"]


@pytest.mark.parametrize("number", [2, -1, 0.5])
def test_a_number_of_no_class_is_refused(tmp_path: Path, number: float) -> None:
    place = str(tmp_path / "p.recordio")
    with recordio.Writer(place) as writer:
        writer.write(recordio.example.encode({"id": 1, "prediction": number}))
    predictions = Predictions(place, "id", "prediction", ["cat", "dog"])
    with pytest.raises(EdlError, match="the model has 2 classes"):
        predictions.kind()


@pytest.mark.parametrize("line", ["7", "[]", "[" * 100_000])
def test_lines_that_are_no_predictions_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(line)
    with pytest.raises(EdlError, match="not JSON Lines"):
        Predictions(str(tmp_path / "p.jsonl"), "id", "prediction").kind()


def test_statements_come_from_one_place(sql: Call) -> None:
    assert "either a file of statements or -e" in sql(code=2).err
    assert "either a file of statements or -e" in sql("s.sql", "-e", "SHOW TRAIN wages", code=2).err


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """The records of each evaluation, in the place of jobs."""
    found: list[list[dict[str, Any]]] = []

    def evaluate(*, data: list[str], **_: object) -> JobResult:
        (file,) = Path(data[0]).glob("*.recordio")
        source = recordio.open_source(str(file))
        found.append([recordio.example.decode(r) for r in source.read(0, source.count())])
        return JobResult("job", "SUCCEEDED", metrics={"accuracy": 0.5, "loss": 2})

    monkeypatch.setattr("edl.api.evaluate", evaluate)
    return found


def test_each_evaluation_is_a_row_of_a_table(sql: Call, evaluations: list[Any]) -> None:
    statement = "SELECT role, wage FROM people TO EVALUATE wages INTO results"
    before = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    first, second = (json.loads(sql("-e", statement, "-o", "json").out)[0] for _ in range(2))
    assert (first["table_created"], second["table_created"]) == (True, False)
    assert first["metrics"] == {"accuracy": 0.5, "loss": 2.0}
    with sqlite3.connect("my.db") as database:
        rows = database.execute("SELECT model, row_count, accuracy, loss FROM results").fetchall()
        times = database.execute("SELECT evaluated_at FROM results").fetchall()
    database.close()
    assert rows == [("wages", 2, 0.5, 2.0)] * 2
    assert before <= datetime.fromisoformat(times[0][0]) <= datetime.fromisoformat(times[1][0])
    assert [record["label"][0] for record in evaluations[0]] == [5.5, 2.5]


def test_a_table_of_other_results_is_left_as_it_is(sql: Call, evaluations: list[Any]) -> None:
    with sqlite3.connect("my.db") as database:
        known = "model TEXT, evaluated_at TEXT, row_count INT, accuracy REAL"
        database.execute(f"CREATE TABLE results ({known})")
    database.close()
    statement = "SELECT role, wage FROM people TO EVALUATE wages INTO results"
    assert "results has no column loss" in sql("-e", statement, code=2).err
    assert len(evaluations) == 1


def test_classes_keep_the_numbers_of_the_training(sql: Call, evaluations: list[Any]) -> None:
    place = Path("models/wages/statement.json")
    about = json.loads(place.read_text())
    about |= {"label": "role", "classes": ["boss", "chief", "clerk"], "texts": {"wage": False}}
    place.write_text(json.dumps(about))
    sql("-e", "SELECT role, wage FROM people TO EVALUATE wages")
    assert [record["label"][0] for record in evaluations[0]] == [0, 2]
    statement = "SELECT 'cook' AS role, wage FROM people TO EVALUATE wages"
    failed = run(["sql", "--db", "sqlite:///my.db", "-e", statement])
    assert "'cook', which is not a class of the model" in sql("-e", statement, code=failed).err


@pytest.mark.parametrize(
    ("column", "columns", "unused"),
    [
        ("", ("a", "y"), ("k",)),
        ('COLUMN ".*"', ("a", "y"), ("k",)),
        ('COLUMN "k|z"', ("k", "y"), ()),
        ('COLUMN k, ".*"', ("k", "a", "y"), ()),
        ("COLUMN a", ("a", "y"), ()),
        ('COLUMN ".*" FOR deep COLUMN k FOR wide', ("a", "k", "y"), ()),
    ],
)
def test_patterns_find_no_keys(
    column: str, columns: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    (statement,) = parse_statements(f"SELECT 1 TRAIN m {column} INTO x")
    assert isinstance(statement, Train)
    chosen = select(statement, ["k", "a", "y"], learns_label=True, keys={"k", "other"})
    assert (chosen.columns, chosen.unused_keys) == (columns, unused)


def test_models_without_a_label_and_columns_by_pattern() -> None:
    (statement,) = parse_statements('SELECT 1 TRAIN m COLUMN "[ab]1", c, BUCKET(B2, [1]) INTO x')
    assert isinstance(statement, Train)
    names = ["a1", "b1", "B2", "c", "y"]
    chosen = select(statement, names, learns_label=True)
    assert (chosen.label, chosen.columns) == ("y", ("a1", "b1", "c", "B2", "y"))
    assert chosen.params == {"columns": ["a1", "b1", "c", ["BUCKET", "B2", [1]]]}
    assert select(statement, names, learns_label=False).label == ""
    (plain,) = parse_statements("SELECT 1 TRAIN m INTO x")
    assert isinstance(plain, Train)
    assert select(plain, names, learns_label=False) == Selection("", (), {})


@pytest.mark.parametrize(("line", "learns"), [("learns_label = False", False), ("x = 1", True)])
def test_a_model_says_that_it_learns_no_label(line: str, learns: bool) -> None:
    source = f"import tensorflow\n\nclass M(tensorflow.keras.Model):\n    {line}\n"
    assert learns_label(source, "M") is learns
