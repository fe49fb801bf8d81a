"""Paths, globs and URIs as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.core.locations import absolute, check, scheme, user_path
from edl.core.problem import Problem

ENVIRON = {"HOME": "/home/ada", "DATA": "/mnt/data"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("train/*.recordio", "/work/train/*.recordio"),
        ("./a/../b/", "/work/b"),
        ("/x//y", "/x/y"),
        ("~/zoo", "/home/ada/zoo"),
        ("~", "/home/ada"),
        ("$HOME/work", "/home/ada/work"),
        ("${DATA}/a", "/mnt/data/a"),
        ("$NOPE/a", "/work/$NOPE/a"),
        ("file:///x/a%20b", "/x/a b"),
        ("file://localhost/x", "/x"),
        ("gs://bucket/a//b/../*.recordio", "gs://bucket/a//b/../*.recordio"),
        ("a~/b", "/work/a~/b"),
    ],
)
def test_places_become_absolute(written: str, meant: str) -> None:
    assert absolute(written, "/work", ENVIRON) == meant


def test_a_tilde_is_a_home_folder_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert user_path("~/zoo") == Path("/home/ada/zoo")
    assert user_path("a/~x") == Path("a/~x")
    with pytest.raises(Problem, match="no home folder ~no-such-user") as caught:
        user_path("~no-such-user/zoo")
    assert caught.value.where == "~no-such-user/zoo"
    assert "./~no-such-user/zoo" in caught.value.remedy


def test_schemes() -> None:
    assert scheme("S3://b/k") == "s3"
    assert scheme("/a/b") == scheme("C:/x") == scheme("a://b"[:1] + "://b") == ""


@pytest.mark.parametrize("written", ["s3:/bucket/x", "gs:/b/*.recordio", "s3://", "file:/x"])
def test_what_only_looks_like_a_uri_is_refused(written: str) -> None:
    with pytest.raises(Problem) as caught:
        check(written, "--data")
    assert str(caught.value).startswith(f"--data {written}: ")


@pytest.mark.parametrize("written", ["s3://bucket/x", "C:/x", "./s3:/x", "a:b", "12:/x"])
def test_paths_and_whole_uris_are_accepted(written: str) -> None:
    check(written, "--data")
