"""``edl sql`` and ``edl data load`` with options that are missing, empty or odd."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edl.__main__ import run
from edl.adapters import input_files
from edl.core.problem import Problem
from edl_sql.databases.database import Database
from edl_testing.command import Done, assert_refused

Attempt = Callable[..., Done]
LOAD = ("data", "load", "--to", "sqlite:///t.db", "--table", "t", "--column")


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """The command, in a folder with an empty database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.db").touch()

    def call(*args: str) -> Done:
        capsys.readouterr()
        return Done(args, run(args), *capsys.readouterr())

    return call


def test_an_example_of_several_lines_is_whole(attempt: Attempt) -> None:
    done = attempt("sql")
    assert_refused(done, 2, "edl sql needs --db")
    assert "\\\n" not in done.err


def test_names_that_are_empty(attempt: Attempt) -> None:
    load = (*LOAD[:-1], "--from", "p.recordio")
    assert_refused(attempt(*load, "--column", " "), 2, "--column is empty")
    assert_refused(attempt(*load, "--column", "c", "--key", ""), 2, "--key is empty")


@pytest.mark.timeout(60)  # it would wait for ever
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "recordio", "tfrecord"])
def test_a_pipe_with_the_name_of_a_table(attempt: Attempt, tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"t.{suffix}")
    assert_refused(attempt(*LOAD, "c", "--from", f"t.{suffix}"), 3, "regular file")


@pytest.mark.timeout(60)  # it would wait for ever
def test_a_password_that_no_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Problem, match="no process writes to this pipe"):
        Database("postgresql://me@127.0.0.1:1/d", str(tmp_path / "pipe"))


@pytest.mark.parametrize("words", [("sql",), ("data", "load")])
def test_help_begins_with_examples(attempt: Attempt, words: tuple[str, ...]) -> None:
    lines = attempt(*words, "--help").out.splitlines()
    assert lines[0] == "Examples:"
    assert lines[1].startswith("  " + " ".join(("edl", *words)))
