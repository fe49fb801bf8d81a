"""Names of model zoos in git repositories, as users write them and as messages carry them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_runtime.model.git_source import (
    GitSource,
    GitSourceError,
    GitUrl,
    make_source,
    parse,
    parse_url,
)

URL = "https://git.example.com/team/zoo.git"
PARSED = GitUrl("git.example.com", 443, "/team/zoo.git")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (URL, GitSource(PARSED)),
        (f"{URL}#v1", GitSource(PARSED, "v1")),
        (f"{URL}@v1", GitSource(PARSED, "v1")),
        (f"{URL}#feature/x", GitSource(PARSED, "feature/x")),
        (f"{URL}#v1:models/vision", GitSource(PARSED, "v1", "models/vision")),
        (f"{URL}#:models", GitSource(PARSED, "", "models")),
        ("https://host:8443/zoo", GitSource(GitUrl("host", 8443, "/zoo"))),
        ("https://host:443/zoo", GitSource(GitUrl("host", 443, "/zoo"))),
        ("https://[2001:db8::1]/zoo", GitSource(GitUrl("[2001:db8::1]", 443, "/zoo"))),
        ("HTTPS://Host/Zoo.git", GitSource(GitUrl("host", 443, "/Zoo.git"))),
        (
            "https://host/My%20Project/_git/x",
            GitSource(GitUrl("host", 443, "/My%20Project/_git/x")),
        ),
    ],
)
def test_url_ref_and_folder(text: str, source: GitSource) -> None:
    assert parse(text) == source
    assert parse(str(source)) == source


@pytest.mark.parametrize(
    "text", ["zoo", "./zoo", "/models/zoo", "~/zoo#1", "file:///models/zoo", "a@b/zoo", "C:zoo"]
)
def test_a_path_of_this_machine_is_no_repository(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("text", ["file:///srv/zoo.git", "file:///srv/zoo#main"])
def test_a_repository_of_this_machine_is_refused_like_one_by_http(text: str) -> None:
    with pytest.raises(GitSourceError, match="only https repositories are fetched, not 'file'"):
        parse(text)


BAD_URLS = [
    ("", "only https"),
    ("a/b.git", "only https"),
    ("/etc", "only https"),
    ("file:///etc", "only https"),
    ("git://example.com/a.git", "only https"),
    ("ssh://git@example.com/a.git", "only https"),
    ("git@example.com:a.git", "only https"),
    ("http://example.com/a.git", "only https"),
    ("ext::sh -c id", "only https"),
    ("fd::7", "only https"),
    ("--upload-pack=id", "only https"),
    ("-x", "only https"),
    ("https://", "malformed"),
    ("https:///a", "malformed"),
    ("https://example.com", "no repository"),
    ("https://user:secret@example.com/a.git", "user name or password"),
    ("https://token@example.com/a.git", "user name or password"),
    ("https://example.com/a.git?x=1", "malformed"),
    ("https://example.com/a.git#x", "malformed"),
    ("https://example.com/a b", "malformed"),
    ("https://example.com/a\n.git", "malformed"),
    ("https://example.com:99999/a.git", "malformed"),
    ("https://example.com:port/a.git", "malformed"),
    ("https://ex\u0430mple.com/a.git", "malformed"),
    ("https://example.com\\@127.0.0.1/a.git", "user name or password"),
    ("x" * 3000, "malformed"),
]


@pytest.mark.parametrize(("url", "words"), BAD_URLS)
def test_what_is_no_url_of_a_repository(url: str, words: str) -> None:
    with pytest.raises(GitSourceError, match=words) as error:
        parse_url(url)
    assert "secret" not in str(error.value)
    assert error.value.part in ("scheme", "password", "url")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ssh://host/zoo.git", "only https"),
        ("git@host:team/zoo.git", "only https"),
        ("https://me:secret@host/zoo.git", "user name or password"),
        (f"{URL}?x=1#main", "malformed"),
        (f"{URL}#", "the ref is empty"),
        (f"{URL}@", "the ref is empty"),
        (f"{URL}@a#b", "twice"),
        (f"{URL}#-x", "not a branch"),
        (f"{URL}#a:../b", "not a folder"),
    ],
)
def test_what_names_no_source(text: str, words: str) -> None:
    with pytest.raises(GitSourceError, match=words) as error:
        parse(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("ref", ["main", "v1.2", "feature/x", "a" * 40, "release-1.0+x", "a@b"])
def test_names_that_git_accepts_are_refs(ref: str) -> None:
    assert make_source(PARSED, ref, "").ref == ref


@pytest.mark.parametrize(
    "ref",
    [
        *("-x", "--upload-pack=id", "a..b", "a b", "a\n", "+a:b", "a:b", "a~1", "a^", "HEAD@{1}"),
        *("/a", "a/", "a//b", "a/-b", "a/.b", "a.lock", "a.", "*", "a\\b", "x" * 300, ":/x"),
    ],
)
def test_other_refs_are_errors(ref: str) -> None:
    with pytest.raises(GitSourceError, match="not a branch"):
        make_source(PARSED, ref, "")


@pytest.mark.parametrize(
    "folder", ["..", "a/..", "../a", "/a", "/b", "-x", "a//b", "a\n", ".", "a:b"]
)
def test_folders_outside_of_the_repository_are_errors(folder: str) -> None:
    with pytest.raises(GitSourceError, match="not a folder"):
        make_source(PARSED, "", folder)


@settings(deadline=None)
@given(st.text(max_size=12))
def test_no_accepted_ref_is_an_option_or_a_refspec_to_git(ref: str) -> None:
    """git itself agrees that it is a name."""
    try:
        make_source(PARSED, ref, "")
    except GitSourceError:
        return
    if ref:
        command = ["git", "check-ref-format", "--allow-onelevel", ref]
        assert subprocess.run(command, check=False).returncode == 0


@settings(deadline=None)
@given(st.text(alphabet="https:/@#?.-_~%[]:abv1 \n\\é", max_size=40))
def test_any_text_is_a_path_or_a_plain_source_or_an_error(tail: str) -> None:
    for text in (tail, f"https://host/{tail}", f"https://{tail}/zoo.git"):
        try:
            source = parse(text)
        except GitSourceError:
            continue
        if source is not None:
            assert str(source.url).startswith("https://")
            assert "@" not in str(source.url)
            assert not source.ref.startswith("-")
            assert not source.folder.startswith(("-", "/"))
            assert parse(str(source)) == source
