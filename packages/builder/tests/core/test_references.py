"""Names of images, tags and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_builder.core.failure import BuilderError
from edl_builder.core.identifiers import Key
from edl_builder.core.references import (
    check_labels,
    check_tag,
    key_tag,
    matches,
    parse_reference,
    parse_repository,
)

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("debian:12", "docker.io/library/debian:12"),
        ("me/zoo", "docker.io/me/zoo"),
        ("localhost/zoo", "localhost/zoo"),
        ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b:c"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
        (f"ghcr.io/a/b:1@{DIGEST}", f"ghcr.io/a/b:1@{DIGEST}"),
    ],
)
def test_names_are_read_in_full(text: str, full: str) -> None:
    assert str(parse_reference(text, "base image")) == full


BAD = ["", "A/b", "a b", "-x/y", "a/../b", "a//b", "x/y:", "x/y:-t", "x/y@sha256:0", "a\nb/c"]
BAD += ["$(id)/x", "x/y --privileged", "https://x.com/y", "x.com/", "x" * 300, "../x", "x.com:a/b"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BuilderError):
        parse_reference(text, "base image")


@pytest.mark.parametrize("text", [*BAD, "debian", "x.com/a:1", f"x.com/a@{DIGEST}", "a/b"])
def test_a_repository_has_a_registry_and_no_tag(text: str) -> None:
    with pytest.raises(BuilderError):
        parse_repository(text)


@pytest.mark.parametrize("tag", ["-x", ".x", "a/b", "a b", "x" * 129, "a\n", "edl-0"])
def test_other_tags_are_refused(tag: str) -> None:
    with pytest.raises(BuilderError):
        check_tag(tag)


def test_tags_are_taken() -> None:
    check_tag("")
    check_tag("v1.0_x-Y")


@pytest.mark.parametrize(
    "labels",
    [
        *([("a b", "c")], [("io.edl.key", "x")], [("a", "x\ny")], [("a", "x" * 2000)], [("", "")]),
        [(f"l{n}", "") for n in range(40)],
    ],
)
def test_other_labels_are_refused(labels: list[tuple[str, str]]) -> None:
    with pytest.raises(BuilderError):
        check_labels(labels)


def test_labels_are_taken() -> None:
    check_labels([("org.opencontainers.image.title", 'any "text" $here'), ("app/x", "")])


@given(st.text(max_size=30))
def test_a_name_that_is_taken_is_read_the_same_again(text: str) -> None:
    """Fuzz: nothing but letters of names gets through, and never a leading dash."""
    try:
        found = parse_reference(text, "base image")
    except BuilderError:
        return
    assert parse_reference(str(found), "base image") == found
    assert not str(found).startswith("-")
    assert not any(ch.isspace() or ch in "$`'\"\\;&|<>" for ch in str(found))


def test_the_tag_of_a_key_is_a_tag() -> None:
    assert parse_reference(f"x.com/a:{key_tag(Key('f' * 64))}", "image").tag


def test_patterns() -> None:
    assert matches("x.com/team-a/zoo", ["x.com/team-a/*"])
    assert not matches("x.com/team-ab/zoo", ["x.com/team-a/*"])
    assert not matches("x.com/a", [])
