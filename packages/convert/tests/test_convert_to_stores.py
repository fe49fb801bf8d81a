"""``edl data convert`` to a store: whole files, the description last, nothing after a failure."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

import recordio
import recordio.example
from edl.__main__ import run
from edl.adapters import storage
from edl_testing.command import Done

Call = Callable[..., Done]
STORE = fsspec.filesystem("memory")
PLACE = "memory:///bucket/of/mine"


@pytest.fixture
def edl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "t.csv").write_text("x,town,y\n" + "1,Rom,2\n3,Ulm,4\n" * 50)

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    yield call
    assert not list((tmp_path / "temporary").iterdir()), "nothing is left here"
    if STORE.exists("/bucket"):
        STORE.rm("/bucket", recursive=True)


def list_stored() -> list[str]:
    return sorted(path.removeprefix("/bucket/of/mine/") for path in STORE.find("/bucket"))


def test_a_folder_with_parts(edl: Call) -> None:
    done = edl(
        *("data", "convert", "t.csv", "--label", "town", "--split", "0.5"),
        *("--records-per-file", "30", "--to", f"{PLACE}/rows", "-o", "json"),
    ).json
    assert done["output"] == f"{PLACE}/rows"
    assert {recordio.open_source(file).format for file in done["files"]} == {"recordio"}
    assert {f"rows/{name}" for name in ("labels.json", "schema.json")} <= set(list_stored())
    assert json.loads(STORE.cat_file("/bucket/of/mine/rows/schema.json"))["rows"] == 100
    found = [file for file in list_stored() if file.endswith(".recordio")]
    assert [f"{PLACE}/{file}" for file in found] == sorted(done["files"])
    told = edl("data", "convert", "t.csv", "--split", "0.5", "--to", f"{PLACE}/more").out
    assert f"in {PLACE}/more/train" in told


def test_one_file(edl: Call) -> None:
    edl("data", "convert", "t.csv", "--to", f"{PLACE}/rows.recordio")
    assert list_stored() == ["rows.recordio", "rows.schema.json"]
    source = recordio.open_source(f"{PLACE}/rows.recordio")
    assert source.count() == 100
    (record,) = source.read(99, 100)
    assert recordio.example.decode(record)["town"] == [b"Ulm"]


def test_the_description_comes_last(edl: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    send = storage.send
    before: list[list[str]] = []

    def watch(local: Path, place: str) -> None:
        before.append(list_stored())
        send(local, place)

    monkeypatch.setattr(storage, "send", watch)
    edl("data", "convert", "t.csv", "--records-per-file", "50", "--to", f"{PLACE}/rows")
    files = ["rows/part-00000.recordio", "rows/part-00001.recordio"]
    sign = ".rows.edl-convert"
    assert before == [[sign], [sign, *files]]
    assert list_stored() == [*files, "rows/schema.json"]


@pytest.mark.parametrize("fails_at", ["part-00001", "schema.json"])
def test_an_output_that_the_store_refuses_leaves_nothing(
    edl: Call, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    put = type(STORE).put_file

    def refuse(self: object, lpath: str, rpath: str, **how: object) -> None:
        if fails_at in rpath:
            raise PermissionError("not today")
        put(self, lpath, rpath, **how)

    monkeypatch.setattr(type(STORE), "put_file", refuse)
    done = edl(
        *("data", "convert", "t.csv", "--records-per-file", "50", "--to", f"{PLACE}/rows"), code=7
    )
    assert "the store rejected the output: the store denies access: not today" in done.err
    assert list_stored() == []


def test_what_a_killed_conversion_left_is_replaced(
    edl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Raised in place of SIGKILL: nothing is removed from the store."""

    convert = ("data", "convert", "t.csv", "--records-per-file", "50", "--to", f"{PLACE}/rows")
    send = storage.send

    def send_half(local: Path, place: str) -> None:
        if place.endswith("schema.json"):
            told = edl(*convert, code=5).err
            assert "is writing there, or was killed" in told, "it lives"
            patch.setattr(storage, "remove", lambda place: None)
            patch.setattr(storage, "remove_file", lambda place: None)
            raise Killed
        send(local, place)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "send", send_half)
        with pytest.raises(Killed):
            edl(*convert)
    STORE.pipe_file("/bucket/of/mine/rows/part-00002.recordio", b"of more rows")
    left = ["rows/part-00000.recordio", "rows/part-00001.recordio"]
    assert list_stored() == [".rows.edl-convert", *left, "rows/part-00002.recordio"]
    edl(*convert)
    assert list_stored() == [*left, "rows/schema.json"]
    STORE.rm("/bucket", recursive=True)
    STORE.pipe_file("/bucket/of/mine/.rows.edl-convert", b'{"host": "other", "folder": "/x"}')
    STORE.pipe_file("/bucket/of/mine/rows/part-00000.recordio", b"")
    told = edl(*convert, code=5).err
    assert "a conversion on other is writing there, or was killed" in told
    assert f"remove {PLACE}/.rows.edl-convert and everything at that URI" in told
    STORE.pipe_file("/bucket/of/mine/.rows.edl-convert", b"[]")
    assert "a conversion on another machine" in edl(*convert, code=5).err


def test_what_cannot_be_is_said_before_anything_is_read(
    edl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    STORE.pipe_file("/bucket/of/mine/rows/x", b"")
    done = edl("data", "convert", "nowhere.csv", "--to", f"{PLACE}/rows", code=5)
    assert "edl does not overwrite existing files or folders" in done.err
    STORE.pipe_file("/bucket/of/mine/a.schema.json", b"")
    done = edl("data", "convert", "nowhere.csv", "--to", f"{PLACE}/a.recordio", code=5)
    assert f"{PLACE}/a.schema.json" in done.err
    done = edl("data", "convert", "nowhere.csv", "--to", f"{PLACE}/rows*", code=2)
    assert "which stores read as a pattern" in done.err
    done = edl("data", "convert", "nowhere.csv", "--to", "nothing://b/rows", code=7)
    assert "nothing" in done.err

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(type(STORE), "pipe_file", refuse)
    done = edl("data", "convert", "nowhere.csv", "--to", f"{PLACE}/new", code=7)
    assert "the store rejected the output: the store denies access: read only" in done.err
