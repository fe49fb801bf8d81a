"""A conversion is killed: the same command again makes its output, and removes what was left."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import recordio
from edl.__main__ import run
from edl_convert.drafts import draft

LONG = (  # for half a minute; to find the types of its columns takes a second
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 3000000"
)


def list_names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def make_old(place: Path) -> None:
    at = time.time() - 1_000
    os.utime(place, (at, at))


def test_what_a_killed_conversion_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("t.db")) as database:
        database.execute("CREATE TABLE t (x INTEGER)")
    convert = ["data", "convert", "--from", "sqlite:///t.db", "--to", "out", "--query"]
    with subprocess.Popen([sys.executable, "-m", "edl", *convert, LONG]) as running:
        deadline = time.monotonic() + 200
        while not (drafts := list(tmp_path.glob(".out.*/.part*"))):
            assert time.monotonic() < deadline, "it writes"
            assert running.poll() is None
            time.sleep(0.02)
        running.kill()
    abandoned = drafts[0].parent
    assert list_names(tmp_path) == [abandoned.name, "t.db"]
    make_old(abandoned)
    assert run([*convert, "SELECT 7 AS x UNION ALL SELECT 8"]) == 0
    assert list_names(tmp_path) == ["out", "t.db"]
    assert recordio.open_source("out/part-00000.recordio").count() == 2


def test_what_others_write_or_have_written_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (tmp_path / ".out.edl-notthis").write_bytes(b"a file")
    for name in (".out.backup", ".other.edl-12345678"):
        (tmp_path / name).mkdir()
        make_old(tmp_path / name)
    before = list_names(tmp_path)
    with draft(output) as first:
        make_old(first)
        with draft(output) as second:
            assert list_names(tmp_path) == sorted([*before, first.name, second.name])
    assert list_names(tmp_path) == before
