"""``edl sql``: what is refused before a job starts, and how a model was trained."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from conftest import Done

import recordio
import recordio.example
from edl.__main__ import run
from edl.conversion.predictions import Predictions
from edl.core import exit_codes
from edl.core.columns import Cell
from edl.core.exit_numbers import INTERRUPTED
from edl.core.job_result import JobResult
from edl.core.model_file import learns_label
from edl.core.sql_selection import Selection, select
from edl.core.sql_statements import Train, parse_statements
from edl.core.sql_tokens import Dialect, ends_with_semicolon
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2

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
    for name, content in {
        "damaged": '{"statement": "SEL',
        "deep": "[" * 100_000,
        "incomplete": '{"statement": "SELECT 1", "label": "wage"}',
        "foreign": json.dumps({**about, "texts": {"role": "yes"}}),
        "a_list": "[]",
    }.items():
        Path("models", name).mkdir()
        Path("models", name, "statement.json").write_text(content)
    Path("model_zoo").mkdir()
    for name in ("a.py", "regressor.py", "classifier.py"):
        Path("model_zoo", name).write_text("class B: pass\n\n\nclass DNN: pass\n")
    Path("model_zoo", "net.py").write_text(
        "def M(units: int = 1, rate=0.1, widths: list[int] = [8], schema=None): pass\n"
        "def closeness(labels, predictions): pass\n"
    )

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
        ("SELECT role FROM people PREDICT people.p USING wages", "no selected column identifies"),
        ("SELECT * FROM keyless PREDICT keyless.p USING wages", "no selected column identifies"),
        ("SELECT id, role FROM people PREDICT none.p USING wages", "there is no table none"),
        ("SELECT id, 7 AS role FROM people PREDICT people.p USING wages", "has numbers; the model"),
        ("SELECT id FROM people PREDICT people.p USING wage", "Did you mean wages?"),
        ("SELECT * FROM people TRAIN a.B COLUMN BUCKET(ag, [1]) INTO m", "there is no column ag"),
        ("SELECT * FROM people TO EVALUATE wage", "Did you mean wages?"),
        ("SELECT role FROM people TO EVALUATE wages", "there is no column wage"),
        ("SELECT wage FROM people TO EVALUATE wages", "there is no column role"),
        ("SELECT role, wage FROM people TO EVALUATE wages LABEL pay", "there is no column pay"),
        ("SELECT * FROM people TO EVALUATE wages INTO people", "people has no column model"),
        ("SELECT * FROM people TRAIN none.DNN INTO m", "names no file of the model zoo"),
        ("SELECT * FROM people TRAIN regressor.DNM INTO m", "Did you mean DNN?"),
        (
            "SELECT id, wage FROM people TRAIN classifier.DNN INTO m",
            "wage is no class: its type is",
        ),
        ("SELECT id, id - 9 AS x FROM people TRAIN classifier.DNN INTO m", "least value is -8"),
        ("SELECT wage FROM people TRAIN net.M INTO m", "no column to learn wage from"),
        ("SELECT * FROM people TRAIN net.M COLUMN wage INTO m", "no column to learn wage from"),
        ("SELECT * FROM people PREDICT people.role USING wages", "column role is of type TEXT"),
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
        ("SELECT id, role FROM people PREDICT ^none.p USING wages", "no table none"),
        ("SELECT * FROM people PREDICT ^people.role USING wages", "is of type TEXT"),
        ("SELECT role FROM people PREDICT ^people.p USING wages", "no selected column identifies"),
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
    assert "not both" in sql(code=2).err
    assert "not both" in sql("s.sql", "-e", "SHOW TRAIN wages", code=2).err


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """The records of each evaluation, in the place of jobs."""
    found: list[list[dict[str, Any]]] = []

    def evaluate(*, data: list[str], **_: object) -> JobResult:
        (file,) = Path(data[0]).glob("*.recordio")
        source = recordio.open_source(str(file))
        found.append([recordio.example.decode(r) for r in source.read(0, source.count())])
        return JobResult("job", "SUCCEEDED", metrics={"accuracy": 0.5, "loss": 2})

    monkeypatch.setattr("edl.api.evaluate", evaluate)
    return found


def test_each_evaluation_is_a_row_of_a_table(sql: Call, evaluated: list[Any]) -> None:
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
    assert [record["label"][0] for record in evaluated[0]] == [5.5, 2.5]


def test_a_table_of_other_results_is_left_as_it_is(sql: Call, evaluated: list[Any]) -> None:
    with sqlite3.connect("my.db") as database:
        known = "model TEXT, evaluated_at TEXT, row_count INT, accuracy REAL"
        database.execute(f"CREATE TABLE results ({known})")
    database.close()
    statement = "SELECT role, wage FROM people TO EVALUATE wages INTO results"
    assert "results has no column loss" in sql("-e", statement, code=2).err
    assert len(evaluated) == 1


def test_classes_keep_the_numbers_of_the_training(sql: Call, evaluated: list[Any]) -> None:
    place = Path("models/wages/statement.json")
    about = json.loads(place.read_text())
    about |= {"label": "role", "classes": ["boss", "chief", "clerk"], "texts": {"wage": False}}
    place.write_text(json.dumps(about))
    sql("-e", "SELECT role, wage FROM people TO EVALUATE wages")
    assert [record["label"][0] for record in evaluated[0]] == [0, 2]
    statement = "SELECT 'cook' AS role, wage FROM people TO EVALUATE wages"
    failed = run(["sql", "--db", "sqlite:///my.db", "-e", statement])
    assert "'cook', which is no class of the model" in sql("-e", statement, code=failed).err


def test_what_a_model_is_trained_with(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, Any]] = []

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        jobs.append(options)
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    Path("model_zoo/anomaly.py").write_text("class Unlike:\n    learns_label = False\n")
    rest = "WITH a=1, train.epoch=3, validation.metrics='Accuracy,AUC'"
    done = sql(
        "-e",
        f"SELECT * FROM people TO TRAIN a.B {rest} COLUMN EMBEDDING(role, 8) INTO m;"
        "SELECT id, role FROM people TO TRAIN anomaly.Unlike COLUMN role INTO unlike;",
    )
    labelled, unlabelled = jobs
    schema = labelled["params"].pop("schema")
    assert labelled["params"] == {"a": 1, "columns": [["EMBEDDING", "role", 8]]}
    assert (labelled["num_epochs"], labelled["eval_metrics_fn"]) == (3, "accuracy,AUC")
    assert (schema["label"], [c["name"] for c in schema["columns"]]) == ("label", ["role", "label"])
    assert "the label is wage, the last column" in done.err
    schema = unlabelled["params"].pop("schema")
    assert (schema["label"], [c["name"] for c in schema["columns"]]) == (None, ["role"])
    assert unlabelled["params"] == {}
    about = json.loads(Path("models/unlike/statement.json").read_text())
    assert (about["label"], about["texts"]) == ("", {"role": True})


def test_models_are_in_a_store(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "memory://bucket/models"

    def train(**options: Any) -> JobResult:
        assert options["output"] == f"{place}/m"
        fsspec.filesystem("memory").pipe("/bucket/models/m/trained_model.pb", b"a model")
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    statement = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"
    there = ("--models", place)
    assert f"the model m is in {place}/m" in sql(*there, "-e", statement).err
    assert sql(*there, "-e", "SHOW TRAIN m").out == f"{statement}\n"
    assert "there is a model m already" in sql(*there, "-e", statement, code=2).err
    evaluated: list[str] = []

    def evaluate(*, trained_model: str, **_: object) -> JobResult:
        evaluated.append(trained_model)
        return JobResult("job", "SUCCEEDED", metrics={"loss": 2})

    monkeypatch.setattr("edl.api.evaluate", evaluate)
    sql(*there, "-e", "SELECT role, wage FROM people TO EVALUATE m")
    assert evaluated == [f"{place}/m"]
    other = sql(*there, "-e", "SHOW TRAIN n", code=4).err
    assert "no statement has trained a model n here" in other
    unknown = sql("--models", "nosuch://bucket/models", "-e", "SHOW TRAIN n", code=4).err
    assert "the store of the models cannot be accessed: Protocol not known: nosuch" in unknown


def test_a_store_that_takes_no_model_is_found_before_rows_are_read(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr("edl.data_api.convert_data", None)
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "pipe_file", refuse)
    statement = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"
    refused = sql("--models", "memory://none/models", "-e", statement, code=7).err
    assert "no model can be written there: the store denies access: read only" in refused
    assert "where: memory://none/models/m, line 1, column 57\n" in refused


class Killed(BaseException):
    """In the place of SIGKILL: nothing more is done than ``finally`` and ``with`` do."""


def write_model(place: str, job: str) -> None:
    """What the job leaves at the output."""
    model = model_pb2.TrainedModel(model_def="a.B", job=job)
    system, path = fsspec.core.url_to_fs(place)
    system.makedirs(path, exist_ok=True)
    system.pipe_file(f"{path}/trained_model.pb", model.SerializeToString())


def files_of(place: str) -> list[str]:
    system, path = fsspec.core.url_to_fs(place)
    return sorted(found.removeprefix(path).lstrip("/") for found in system.find(path))


TRAIN_M = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"


@pytest.mark.parametrize("place", ["kept", "memory://bucket/kept"])
def test_a_model_whose_statement_was_killed_is_found_when_its_job_is_done(
    sql: Call, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    jobs: list[str] = []

    def train(**options: Any) -> JobResult:
        jobs.append(options["name"])
        raise Killed

    fake = FakeJobs(is_over=False)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.sql_session.job_catalog", lambda: fake)
    models = ("--models", place)
    with pytest.raises(Killed):
        sql(*models, "-e", TRAIN_M)
    told = sql(*models, "-e", "SHOW TRAIN m", code=4).err
    assert "the model m is not there yet" in told
    assert f"edl status {jobs[0]}" in told
    fake.is_over = True
    told = sql(*models, "-e", "SHOW TRAIN m", code=4).err
    assert "there is no model m: the job that was to train it is over" in told
    assert f"edl status {jobs[0]} shows how it ended. Then run TRAIN again." in told
    write_model(f"{place}/m", jobs[0])
    assert sql(*models, "-e", "SHOW TRAIN m").out == f"{TRAIN_M}\n"
    assert files_of(place) == ["m/statement.json", "m/trained_model.pb"]
    assert sql(*models, "-e", "SHOW TRAIN m").out == f"{TRAIN_M}\n"
    assert "there is a model m already" in sql(*models, "-e", TRAIN_M, code=2).err
    if "://" in place:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_a_model_of_another_job_is_not_taken_for_the_killed_statement_s(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**_: Any) -> JobResult:
        raise Killed

    monkeypatch.setattr("edl.api.train", train)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    write_model("models/m", "somebody-elses")
    told = sql("-e", "SHOW TRAIN m", code=4).err
    assert "no statement has trained a model m" in told
    assert "edl predict --trained-model may use it" in told
    assert "delete the folder" in sql("-e", TRAIN_M, code=2).err


def test_a_statement_whose_job_was_not_started_leaves_nothing(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**_: Any) -> JobResult:
        assert files_of("new"), "what is kept about the model comes first"
        raise EdlError(ErrorCode.USAGE, "no", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    sql("--models", "new", "-e", TRAIN_M, code=2)
    assert files_of("new") == []


def test_a_statement_that_was_killed_before_its_job_began_names_no_job(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**_: Any) -> JobResult:
        raise Killed

    monkeypatch.setattr("edl.api.train", train)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    for statement in ("SHOW TRAIN m", "SELECT role, wage FROM people TO EVALUATE m"):
        told = sql("-e", statement, code=4).err
        assert "there is no model m: no job of this machine trains it" in told
        assert "edl status" not in told
        assert "Run TRAIN again" in told


def test_a_job_that_fails_advises_to_run_the_statement_again(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are gone, so neither ``edl resume`` nor another submission helps."""
    steps = "edl resume a-job starts it again."

    def train(**_: Any) -> JobResult:
        raise EdlError(ErrorCode.USER_CODE, "no", where="a.py:1", remedy=f"Mend it. {steps}")

    fake = FakeJobs(is_over=True)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.api.evaluate", train)
    monkeypatch.setattr("edl.sql_session.job_catalog", lambda: fake)
    for statement in (TRAIN_M, "SELECT role, wage FROM people TO EVALUATE wages"):
        failed = sql("-e", statement, code=1).err
        assert "what to do: Mend it. Then run the statement again" in failed
        assert "resume" not in failed


@pytest.mark.parametrize("is_over", [True, False])
def test_what_is_kept_about_a_model_goes_with_a_job_that_has_failed(
    sql: Call, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """The records of the job are gone, so nothing can finish it."""

    def train(**_: Any) -> JobResult:
        raise EdlError(ErrorCode.MODEL_CONTRACT, "no", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.sql_session.job_catalog", lambda: FakeJobs(is_over))
    sql("--models", "new", "-e", TRAIN_M, code=4)
    assert bool(files_of("new")) == (not is_over)


class FakeJobs:
    """In the place of the catalog, all backends and the watcher of one job."""

    def __init__(self, is_over: bool) -> None:
        self.is_over = is_over
        self.stopped: list[str] = []
        self.continuation = self

    def next_steps(self, status: FakeJobs) -> str:
        return "edl resume a-job starts it again."

    def has(self, name: str) -> bool:
        return True

    def find(self, name: str) -> FakeJobs:
        return self

    def status(self, name: str = "") -> FakeJobs:
        return self

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)

    def run(self) -> None:
        self.is_over = True


def test_a_model_that_is_being_trained_is_not_trained_twice(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []

    def train(**options: Any) -> JobResult:
        jobs.append(options["name"])
        raise Killed

    fake = FakeJobs(is_over=False)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.sql_session.job_catalog", lambda: fake)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    told = sql("-e", TRAIN_M, code=2).err
    assert f"the job {jobs[0]} is training a model m" in told
    assert len(jobs) == 1
    fake.is_over = True  # and has left no model
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    first, second = jobs
    assert first != second
    assert [file for file in files_of("models") if ".m." in file] == [f".m.{second}.statement.json"]


def test_ctrl_c_ends_the_job_before_its_records_go(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeJobs(is_over=False)
    records: list[Path] = []

    def train(*, data: list[str], **_: Any) -> JobResult:
        records.append(Path(data[0]))
        raise KeyboardInterrupt

    def run(self: FakeJobs) -> None:
        assert records[0].is_dir()
        self.is_over = True

    monkeypatch.setattr(FakeJobs, "run", run)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.sql_session.job_catalog", lambda: fake)
    monkeypatch.setattr("edl.use_cases.statement_jobs.JobWatcher", lambda *_: fake)
    done = sql("-e", TRAIN_M, code=INTERRUPTED)
    assert "stopping a-b-" in done.err
    assert fake.is_over
    assert fake.stopped == ["edl sql was interrupted"]
    assert not records[0].exists()


def test_jobs_have_the_options_of_the_command(
    sql: Call, monkeypatch: pytest.MonkeyPatch, evaluated: list[Any]
) -> None:
    jobs: list[dict[str, Any]] = []

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        jobs.append(options)
        return JobResult("job", "SUCCEEDED")

    def predict(**options: Any) -> JobResult:
        jobs.append(options)
        raise EdlError(ErrorCode.STOPPED, "enough", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.api.predict", predict)
    failed = sql(
        *("--platform", "docker", "--num-workers", "2", "--env", "A=1", "--allow-dead-letters"),
        *("--git-credential", "mine", "--trusted-images", "here/us", "--work-dir", "records/here"),
        "-e",
        "SELECT * FROM people TRAIN a.B INTO m;"
        "SELECT * FROM people TRAIN a.B WITH train.num_workers=3 INTO n;"
        "SELECT * FROM people PREDICT people.p USING wages",
        code=exit_codes.present("STOPPED").exit_code,
    )
    assert "enough" in failed.err
    first, second, third = jobs
    everywhere = {"platform": "docker", "env": ["A=1"], "allow_dead_letters": True}
    for job in jobs:
        assert everywhere.items() <= job.items()
        assert Path(job["data"][0]).parent.parent == Path("records/here")
    assert [job["num_workers"] for job in jobs] == ["2", 3, "2"]
    assert (first["git_credential"], second["git_credential"]) == ("mine", "mine")
    assert "git_credential" not in third
    assert third["trusted_images"] == "here/us"
    assert "trusted_images" not in first
    assert list(Path("records/here").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--platform", "cloud"), "--platform: "),
        (("--num-workers", "0"), "--num-workers: "),
        (("--name", "one"), "there is no option --name"),
    ],
)
def test_a_wrong_option_is_refused_before_rows_are_read(
    sql: Call, flags: tuple[str, ...], words: str
) -> None:
    assert words in sql(*flags, "-e", "SELECT * FROM none TRAIN a.B INTO m", code=2).err


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


class Terminal(io.StringIO):
    """What is typed at a terminal."""

    def isatty(self) -> bool:
        return True


def test_statements_are_typed_at_a_prompt(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "SHOW TRAIN\n  wages; -- twice\nSHOW TRAIN wage;\nNO WAY;\nSHOW TRAIN wages;\n"
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    done = sql()
    assert done.out.count("SELECT … INTO wages") == 2
    assert done.out.count("...> ") == 1
    assert "Did you mean wages?" in done.err
    assert "neither TRAIN nor PREDICT" in done.err
    monkeypatch.setattr("sys.stdin", Terminal("exit\nSHOW TRAIN wages;\n"))
    assert "INTO wages" not in sql().out


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("SHOW TRAIN m;", True),
        ("SHOW TRAIN m; -- end", True),
        ("SHOW TRAIN m", False),
        ("SELECT ';", False),
        ("SELECT 1; /* ;", False),
        ("SELECT (1;", False),
        ("SELECT 1);", True),
        ("SELECT ');'", False),
        ("", False),
    ],
)
def test_a_statement_ends_with_its_semicolon(text: str, ends: bool) -> None:
    assert ends_with_semicolon(text, Dialect.STANDARD) is ends
