"""``edl data convert`` and ``inspect`` read files of a store as those of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

import recordio
import recordio.example
from edl.__main__ import run
from edl_testing.command import Done

Call = Callable[..., Done]
STORE = fsspec.filesystem("memory")
PLACE = "memory://bucket/tables"
ROWS = 300
TABLE = "x,town,y\n" + "".join(
    f"{number},{'Rom' if number % 2 else 'Köln'},{number / 4}\n" for number in range(ROWS)
)


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    monkeypatch.chdir(tmp_path)
    columns = {"x": list(range(ROWS)), "y": [number / 4 for number in range(ROWS)]}
    pyarrow.parquet.write_table(pyarrow.table(columns), "t.parquet", row_group_size=100)
    Path("t.csv").write_text(TABLE)
    for name in ("t.csv", "t.parquet"):
        STORE.put_file(name, f"/bucket/tables/{name}")

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    yield call
    STORE.rm("/bucket", recursive=True)


def rows(place: str) -> list[dict[str, Any]]:
    source = recordio.open_source(place)
    return [recordio.example.decode(record) for record in source.read(0, source.count())]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_becomes_the_same_records(edl: Call, name: str) -> None:
    label = ("--label", "town") if name == "t.csv" else ()
    edl("data", "convert", name, *label, "--to", "here.recordio")
    edl("data", "convert", f"{PLACE}/{name}", *label, "--to", "there.recordio")
    assert rows("there.recordio") == rows("here.recordio")
    assert len(rows("here.recordio")) == ROWS
    here, there = (json.loads(Path(f"{at}.schema.json").read_text()) for at in ("here", "there"))
    assert here == there


def test_patterns_and_folders(edl: Call) -> None:
    STORE.pipe_file("/bucket/more/a.csv", TABLE.encode())
    STORE.pipe_file("/bucket/more/b.csv", TABLE.encode())
    edl("data", "convert", "memory://bucket/more/*.csv", "--to", "pattern.recordio")
    STORE.pipe_file("/bucket/more/schema.json", b"{}")
    edl("data", "convert", "memory://bucket/more", "--to", "folder.recordio")
    assert len(rows("pattern.recordio")) == len(rows("folder.recordio")) == 2 * ROWS
    assert "several formats: csv, parquet" in edl("data", "convert", PLACE, "--to", "o", code=2).err


def test_records_pass_through(edl: Call) -> None:
    edl("data", "convert", "t.csv", "--to", "memory://bucket/records")
    edl("data", "convert", "memory://bucket/records", "--to", "again.recordio")
    assert len(rows("again.recordio")) == ROWS


def test_what_is_wrong_names_the_object(edl: Call) -> None:
    def refuse(*args: str, code: int = 3) -> str:
        return edl("data", "convert", *args, "--to", "out", code=code).err

    assert f"{PLACE}/none.csv: nothing matches" in refuse(f"{PLACE}/none.csv")
    assert "images and idx files" in refuse(f"{PLACE}/t.csv", "--format", "idx", code=2)
    assert "images are converted from one folder" in refuse(PLACE, "--format", "images", code=2)
    STORE.pipe_file("/bucket/bad.csv", b"x,y\n1,2\n3\n")
    assert "where: memory:///bucket/bad.csv:3" in refuse("memory://bucket/bad.csv")
    STORE.pipe_file("/bucket/bad.parquet", b"PAR1 no")
    assert "where: memory:///bucket/bad.parquet" in refuse("memory://bucket/bad.parquet")
    STORE.pipe_file("/bucket/only/schema.json", b"{}")
    assert "contains no files" in refuse("memory://bucket/only")
    assert "nothing" in refuse("nothing://bucket/t.csv")
    assert not Path("out").exists()


def test_an_object_that_goes_away_while_it_is_read(
    edl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_missing(self: object, path: str, **_: object) -> bytes:
        raise PermissionError("no more")

    monkeypatch.setattr(type(STORE), "cat_file", raise_missing)
    told = edl("data", "convert", f"{PLACE}/t.csv", "--to", "out", code=3).err
    assert "the store denies access: no more" in told


def test_a_parquet_file_is_inspected(edl: Call) -> None:
    (report,) = json.loads(edl("data", "inspect", f"{PLACE}/t.parquet", "-o", "json").out)
    assert (report["records"], report["blocks"]) == (ROWS, 3)
    assert report["bytes"] == Path("t.parquet").stat().st_size
