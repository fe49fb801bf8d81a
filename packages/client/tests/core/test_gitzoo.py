"""Names of git repositories, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.core.gitzoo import GitZoo, parse

URL = "https://git.example.com/team/zoo.git"


@pytest.mark.parametrize(
    ("text", "zoo"),
    [
        (URL, GitZoo(URL)),
        (f"{URL}#v1", GitZoo(URL, "v1")),
        (f"{URL}@v1", GitZoo(URL, "v1")),
        (f"{URL}#feature/x", GitZoo(URL, "feature/x")),
        (f"{URL}#v1:models/vision", GitZoo(URL, "v1", "models/vision")),
        (f"{URL}#:models", GitZoo(URL, "", "models")),
        ("https://host:8443/zoo", GitZoo("https://host:8443/zoo")),
        ("https://[2001:db8::1]/zoo", GitZoo("https://[2001:db8::1]/zoo")),
        ("HTTPS://Host/Zoo.git", GitZoo("https://host/Zoo.git")),
    ],
)
def test_url_ref_and_folder(text: str, zoo: GitZoo) -> None:
    assert parse(text) == zoo
    assert parse(str(zoo)) == zoo


@pytest.mark.parametrize(
    "text", ["zoo", "./zoo", "/models/zoo", "~/zoo#1", "file:///models/zoo", "a@b/zoo", "C:zoo"]
)
def test_a_place_of_this_machine_is_no_repository(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host/zoo.git", "only https"),
        ("ssh://host/zoo.git", "only https"),
        ("git@host:team/zoo.git", "only https"),
        ("https://me:secret@host/zoo.git", "user name or password"),
        ("https://host", "no repository"),
        ("https://host/zoo.git?x=1", "malformed"),
        ("https://host:port/zoo.git", "malformed"),
        ("https://host/zoo.git#", "the ref is empty"),
        ("https://host/zoo.git@", "the ref is empty"),
        ("https://host/zoo.git@a#b", "twice"),
        ("https://host/zoo.git#-x", "no branch"),
        ("https://host/zoo.git#a..b", "no branch"),
        ("https://host/zoo.git#a:../b", "no folder"),
        ("https://host/zoo.git#a:/b", "no folder"),
    ],
)
def test_what_cannot_be_fetched(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        parse(text)
    assert "secret" not in str(error.value)


@given(st.text(alphabet="https:/@#?.-_~%[]:abv1 \n\\é", max_size=40))
def test_anything_is_a_place_or_a_plain_url_or_an_error(tail: str) -> None:
    for text in (tail, f"https://host/{tail}", f"https://{tail}/zoo.git"):
        try:
            zoo = parse(text)
        except ValueError:
            continue
        if zoo is not None:
            assert zoo.url.startswith("https://")
            assert "@" not in zoo.url
            assert not zoo.ref.startswith("-")
            assert not zoo.folder.startswith(("-", "/"))
            assert parse(str(zoo)) == zoo
