"""``TO EXPLAIN``: contributions of columns become a table and a picture."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sql_command import Call, caller, prepare_folder

import recordio
import recordio.example
from edl_sql.explain_statement import draw


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command, with a model of two columns; a job says what each adds to two rows."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    about = json.loads(Path("models/wages/statement.json").read_text())
    about |= {"model_def": "regressor.DNN", "texts": {"role": True, "id": False}}
    Path("models/wages/statement.json").write_text(json.dumps(about))

    def predict(*, output: str, input_fn: str, **_: object) -> None:
        assert input_fn == "sqlflow.explain_input"
        with recordio.Writer(output) as writer:
            for values in ([1.0, -4.0], [0.0, 2.0]):  # of id, and of role
                writer.write(recordio.example.encode({"prediction": values}))

    monkeypatch.setattr("edl.api.predict", predict)
    return caller(capsys)


def test_contributions_are_rows_of_a_table(sql: Call) -> None:
    statement = "SELECT id, role FROM people TO EXPLAIN wages INTO why"
    lines = sql("-e", statement).out.splitlines()
    assert [line.split() for line in lines[1:]] == [["role", "3"], ["id", "0.5"]]
    (told,) = json.loads(sql("-e", statement, "-o", "json").out)
    assert (told["contributions"], told["table_created"]) == ({"role": 3.0, "id": 0.5}, False)
    with sqlite3.connect("my.db") as database:
        rows = database.execute("SELECT model, row_count, column_name, contribution FROM why")
        assert rows.fetchall() == [("wages", 2, "role", 3.0), ("wages", 2, "id", 0.5)] * 2
    database.close()
    assert Path("models/wages/explanation.svg").read_text().count("<rect") == 2


def test_what_cannot_be_explained(sql: Call) -> None:
    told = sql("-e", "SELECT id FROM people TO EXPLAIN wages", code=2).err
    assert "there is no column role in the SELECT" in told
    assert "wages INTO" not in told
    place = Path("models/wages/statement.json")
    place.write_text(place.read_text().replace("regressor.DNN", "net.M"))
    told = sql("-e", "SELECT id, role FROM people TO EXPLAIN wages", code=2).err
    assert "learned by net.M, which cannot be explained" in told


def test_names_are_escaped_in_a_picture() -> None:
    root = ElementTree.fromstring(draw("<m>", {"a & b": 0.0}))
    assert [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")] == [
        "<m>",
        "a & b",
        "0",
    ]
