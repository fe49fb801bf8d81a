"""From patterns to files."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

import recordio


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.recordio",
        "a.recordio",
        "c.tfrecord.gz",
        "README.md",
        "_SUCCESS",
        ".a.recordio.1f2e.tmp",
        "sub/d.recordio",
        "sub/e,f.rio",
        "bare/part-1",
        "bare/part-0",
        "bare/_index",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        ("a.recordio", "a.recordio"),
        ("*.recordio", "a.recordio b.recordio"),
        (["b.recordio", "a.recordio"], "b.recordio a.recordio"),
        (["b.recordio", "*.recordio", ""], "b.recordio a.recordio"),
        (["*.gz", "a.recordio"], "c.tfrecord.gz a.recordio"),
        (".", "./a.recordio ./b.recordio ./c.tfrecord.gz"),
        ("bare", "bare/part-0 bare/part-1"),
        ("bare/", "bare/part-0 bare/part-1"),
        ("*", "README.md a.recordio b.recordio c.tfrecord.gz"),
        ("**/*.recordio", "a.recordio b.recordio sub/d.recordio"),
        ("sub/e,f.rio", "sub/e,f.rio"),
        ("sub/*,f.rio", "sub/e,f.rio"),
        (["_SUCCESS", ".a.recordio.1f2e.tmp"], "_SUCCESS .a.recordio.1f2e.tmp"),
        ("[ab].recordio", "a.recordio b.recordio"),
    ],
)
def test_patterns(place: Path, patterns: str | list[str], files: str) -> None:
    assert recordio.expand(patterns) == files.split(" ")


def test_file_uris_are_paths(place: Path) -> None:
    assert recordio.expand(f"file://{place}/a.recordio") == [f"{place}/a.recordio"]
    assert recordio.open_source(f"file://{place}/a.recordio").count() == 0


def test_nothing_matches(place: Path) -> None:
    with pytest.raises(recordio.NoSuchData) as caught:
        recordio.expand(f"{place}/sub/deeper/*.recordio")
    assert str(caught.value) == (
        f"{place}/sub/deeper/*.recordio: nothing matches; {place}/sub holds d.recordio, e,f.rio"
    )
    with pytest.raises(recordio.NoSuchData, match=r"nothing matches; .* and 1 more"):
        recordio.expand("*.parquet")
    with pytest.raises(recordio.NoSuchData, match="nothing matches"):
        recordio.expand(["a.recordio", "none.recordio"])
    (place / "empty").mkdir()
    with pytest.raises(recordio.NoSuchData, match=r"holds no data file; .*empty is empty"):
        recordio.expand("empty")
    for nothing in ("", " ", [], [""]):
        with pytest.raises(recordio.NoSuchData, match="no data file was given"):
            recordio.expand(nothing)


def test_a_store(store: str) -> None:
    for name in ("b.rio", "a.rio", "_SUCCESS", ".x.tmp", "notes.txt", "sub/c.rio"):
        with fsspec.open(f"{store}/{name}", "wb") as file:
            file.write(b"")
    inside = store.replace("memory://", "memory:///")
    assert recordio.expand(f"{store}/*.rio") == [f"{inside}/a.rio", f"{inside}/b.rio"]
    assert recordio.expand(store) == [f"{inside}/a.rio", f"{inside}/b.rio"]
    assert recordio.expand(f"{store}/notes.txt") == [f"{inside}/notes.txt"]
    assert recordio.open_source(recordio.expand(f"{store}/a.rio")[0]).count() == 0
    with pytest.raises(recordio.NoSuchData, match=r"nothing matches; memory://.* holds .*a\.rio"):
        recordio.expand(f"{store}/none/*.rio")


@pytest.mark.parametrize("name", ["part[1].csv", "part*.csv", "part?.csv"])
def test_a_name_in_a_store_may_look_like_a_glob(store: str, name: str) -> None:
    inside = store.replace("memory://", "memory:///")
    for each in (name, "part1.csv", f"sub{name}/c.csv"):
        with fsspec.open(f"{store}/{each}", "wb") as file:
            file.write(b"")
    assert recordio.expand(f"{store}/{name}") == [f"{inside}/{name}"]
    assert recordio.expand(f"{store}/sub{name}") == [f"{inside}/sub{name}/c.csv"]


def test_an_unknown_store() -> None:
    with pytest.raises(recordio.UnreadableFile, match="nosuch"):
        recordio.expand("nosuch://bucket/x")
    with pytest.raises(recordio.UnreadableFile, match="nosuch"):
        recordio.open_source("nosuch://bucket/x.rio").count()
