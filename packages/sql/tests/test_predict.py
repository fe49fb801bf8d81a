"""``PREDICT``: which rows are predicted, and where predictions go."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sql_command import Call, caller, prepare_folder

import recordio
import recordio.example
from edl_proto.errors import EdlError, ErrorCode


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command; its jobs predict numbers that are the lengths of roles."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()

    def predict(*, data: Sequence[str], keep: Sequence[str], output: str, **_: object) -> None:
        with recordio.Writer(output) as writer:
            for file in recordio.expand(data[0]):
                source = recordio.open_source(file)
                for record in source.read(0, source.count()):
                    features = recordio.example.decode(record)
                    kept = {name: features[name] for name in keep}
                    length = float(sum(map(len, features.get("role", []))))
                    writer.write(recordio.example.encode({**kept, "prediction": length}))

    monkeypatch.setattr("edl.api.predict", predict)
    return caller(capsys)


def execute(*statements: str) -> list[Any]:
    with sqlite3.connect("my.db") as database:
        rows = [database.execute(statement).fetchall() for statement in statements]
    database.close()
    return rows[-1]


ROWS = (
    "INSERT INTO keyless VALUES (1, 'clerk'), (1, 'clerk'), (2, 'clerk'), (NULL, 'Boss'),"
    " (NULL, NULL), (1, ''), (1, 'o''clock'), (1, '1'), (1, '\" , %d')"
)


def test_rows_without_a_key_are_found_by_all_selected_columns(sql: Call) -> None:
    execute(ROWS)
    statement = "SELECT id, role FROM keyless WHERE id = 1 PREDICT keyless.p USING wages"
    done = sql("-e", statement, "-o", "json")
    assert (
        "6 rows to predict, all different: no selected column identifies a row of keyless, and"
        " rows with equal id, role get equal predictions" in done.err
    )
    (told,) = json.loads(done.out)
    assert (told["key"], told["rows"], told["other_rows"]) == (["id", "role"], 7, 3)
    length = "CASE WHEN id = 1 THEN LENGTH(role) END"
    assert execute(f"SELECT COUNT(*), SUM(p IS {length}) FROM keyless") == [(10, 10)]
    sql("-e", "SELECT role, id FROM keyless PREDICT keyless.p USING wages")
    assert execute("SELECT SUM(p = COALESCE(LENGTH(role), 0)) FROM keyless") == [(10,)]


def test_a_key_that_is_not_selected_is_not_needed(sql: Call) -> None:
    execute("INSERT INTO people VALUES (3, 'clerk', 9.0)")
    sql("-e", "SELECT role FROM people PREDICT people.p USING wages")
    assert execute("SELECT p FROM people ORDER BY id") == [(4.0,), (5.0,), (5.0,)]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "SELECT role, id + 1 AS next FROM keyless PREDICT keyless.p USING wages",
            "no selected column identifies a row of keyless, and it has no column next",
        ),
        (
            "SELECT UPPER(role) AS role, id FROM keyless PREDICT keyless.p USING wages",
            "no row of keyless has the values of role, id that a selected row has",
        ),
    ],
)
def test_rows_that_are_not_in_the_table(sql: Call, statement: str, words: str) -> None:
    told = sql("-e", statement, code=2 if "next" in statement else 3).err
    assert words in told
    assert execute("SELECT COUNT(*) FROM pragma_table_info('keyless')") == [(2,)]


def test_a_table_that_is_not_there_gets_the_rows_of_the_select(sql: Call) -> None:
    execute("INSERT INTO people VALUES (3, 'clerk', 9.0)")
    statement = "SELECT role, wage * 2 AS twice FROM people PREDICT results.p USING wages;"
    done = sql("-e", statement, "-o", "json")
    assert "the table results is new, with the rows of the SELECT" in done.err
    (told,) = json.loads(done.out)
    assert (told["table_created"], told["column_added"], told["rows"]) == (True, True, 3)
    expected = [("boss", 11.0, 4.0), ("clerk", 5.0, 5.0), ("clerk", 18.0, 5.0)]
    assert execute("SELECT * FROM results ORDER BY role, twice") == expected
    again = "SELECT role FROM results PREDICT results.p USING wages"
    (told,) = json.loads(sql("-e", again, "-o", "json").out)
    assert (told["table_created"], told["column_added"], told["rows"]) == (False, False, 3)


def test_a_new_table_goes_with_a_job_that_fails(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise EdlError(ErrorCode.INTERNAL, "the job failed", where="", remedy="")

    monkeypatch.setattr("edl.api.predict", fail)
    done = sql("-e", "SELECT role FROM people PREDICT results.p USING wages", code=70)
    assert "the job failed" in done.err
    assert execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'results'") == [(0,)]


def test_predictions_replace_a_label_but_nothing_that_the_model_predicts_from(sql: Call) -> None:
    told = sql("-e", "SELECT * FROM people PREDICT people.Role USING wages", code=2).err
    assert "the model wages predicts from role, which the predictions would replace" in told
    # The label is an integer, and the predictions are floats.
    statement = "SELECT role, id AS wage FROM people PREDICT results.wage USING wages"
    expected = [("boss", 4.0), ("clerk", 5.0)]
    for _ in range(2):  # the second time, its values are no longer those of the SELECT
        sql("-e", statement)
        assert execute("SELECT role, wage FROM results ORDER BY role") == expected


def test_numbers_are_floats_if_they_were_in_the_training(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"statement": "SELECT …", "label": "y", "classes": [], "is_classifier": False}
    about |= {"texts": {"wage": False}, "floats": ["wage"]}
    Path("models/wages/statement.json").write_text(json.dumps(about))
    kinds = []

    def predict(*, data: Sequence[str], output: str, **_: object) -> None:
        with recordio.Writer(output) as writer:
            source = recordio.open_source(recordio.expand(data[0])[0])
            for record in source.read(0, source.count()):
                features = recordio.example.decode(record)
                kinds.append(np.asarray(features["wage"]).dtype.kind)
                writer.write(recordio.example.encode({"id": features["id"], "prediction": 1.0}))

    monkeypatch.setattr("edl.api.predict", predict)
    sql("-e", "SELECT id, CAST(wage AS INT) AS wage FROM people PREDICT people.p USING wages")
    assert kinds == ["f", "f"]
    Path("models/wages/statement.json").write_text(json.dumps({**about, "floats": []}))
    told = sql("-e", "SELECT * FROM people PREDICT people.p USING wages", code=2).err
    assert "the column wage has floats; the model was trained with integers" in told


def test_the_nearest_table_and_column_are_named(sql: Call) -> None:
    for statement, meant in {
        "SELECT * FROM poeple PREDICT people.p USING wages": "people",
        "SELECT id, rolle FROM people PREDICT people.p USING wages": "role",
    }.items():
        told = sql("-e", statement, code=3 if meant == "people" else 2).err
        assert f"what to do: Did you mean {meant}?" in told
