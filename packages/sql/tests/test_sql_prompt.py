"""Statements that are typed at the prompt of ``edl sql``."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from sql_command import Call, caller, prepare_folder

from edl_sql.language.tokens import Dialect, ends_with_semicolon


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people and a model of them."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    return caller(capsys)


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
    monkeypatch.setattr("sys.stdin", Terminal("help;\n"))
    assert "The models are regressor.DNN, " in sql().out
    monkeypatch.setattr("sys.stdin", Terminal("exit\nSHOW TRAIN wages;\n"))
    assert "INTO wages" not in sql().out


@pytest.mark.parametrize("typed", [".tables", "\\dt", "\\d", "\\d people", ".schema people;"])
def test_the_prompt_knows_commands_of_other_shells(
    sql: Call, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{typed}\n.mode csv\n.quit\nSHOW TRAIN wages;"))
    done = sql()
    assert ("role    TEXT" if "people" in typed else "keyless\npeople") in done.out
    assert "neither TRAIN nor PREDICT" in done.err
    assert "INTO wages" not in done.out


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
