"""Links and sessions of a page: what the key has signed, and for how long it counts."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from edl_runtime.identity.page_key import (
    LINK_LIFETIME_S,
    SESSION_LIFETIME_S,
    PageKey,
    metrics_token_file,
)

NOW = 1_790_000_000.0


def token(key: PageKey, now: float = NOW) -> str:
    return parse_qs(urlsplit(key.link("http://127.0.0.1:1/", now)).query)["token"][0]


def test_a_link_is_the_url_with_a_token_that_terminals_take_whole() -> None:
    key = PageKey.create()
    links = {key.link("http://127.0.0.1:1/", NOW) for _ in range(200)}
    assert len(links) == 200
    for link in links:
        assert link.startswith("http://127.0.0.1:1/?token=")
        assert len(link) <= 79
        assert link[-1].isalnum()


def test_a_link_waits_a_day_for_its_click() -> None:
    key = PageKey.create()
    made = token(key)
    for now in (NOW, NOW + LINK_LIFETIME_S, NOW - 3600):
        assert key.is_fresh_link(made, now)
    for now in (NOW + LINK_LIFETIME_S + 1, NOW - 3700):
        assert not key.is_fresh_link(made, now)
        assert key.is_link(made)


def test_a_session_lasts_a_month_and_is_no_link() -> None:
    key = PageKey.create()
    session = key.session(NOW)
    assert key.is_session(session, NOW + SESSION_LIFETIME_S)
    assert not key.is_session(session, NOW + SESSION_LIFETIME_S + 1)
    assert not key.is_link(session)
    assert not key.is_session(token(key), NOW)
    assert key.metrics_token not in (session, key.text)
    assert not key.is_session(key.metrics_token, NOW)


def test_another_key_has_signed_nothing() -> None:
    key, other = PageKey.create(), PageKey.create()
    assert not other.is_link(token(key))
    assert not other.is_session(key.session(NOW), NOW)
    assert key.home != other.home
    assert PageKey(key.text).is_link(token(key))
    assert (PageKey(key.text).home, PageKey(key.text).metrics_token) == (
        key.home,
        key.metrics_token,
    )


def test_a_token_that_was_changed_anywhere_is_wrong() -> None:
    key = PageKey.create()
    right = token(key)
    for place, was in enumerate(right):
        wrong = right[:place] + ("A" if was != "A" else "B") + right[place + 1 :]
        assert not key.is_link(wrong), place
    for wrong in ("", "A", right[:-4], right + "AAAA", right + "=", "ä" * 40, "\0", " " + right):
        assert not key.is_link(wrong)
        assert not key.is_session(wrong, NOW)


def test_a_folder_keeps_its_key_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "page"
    assert PageKey.read(folder) is None
    key = PageKey.provide(folder)
    assert PageKey.provide(folder).text == key.text
    found = PageKey.read(folder)
    assert found is not None
    assert found.text == key.text
    assert metrics_token_file(folder).read_text() == key.metrics_token
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in folder.iterdir()} == {"key", "metrics-token"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_given_key_replaces_another_with_its_token(tmp_path: Path) -> None:
    PageKey.provide(tmp_path)
    given = PageKey.create()
    PageKey.provide(tmp_path, given.text)
    found = PageKey.read(tmp_path)
    assert found is not None
    assert found.text == given.text
    assert metrics_token_file(tmp_path).read_text() == given.metrics_token


def test_what_another_may_have_written_is_no_key(tmp_path: Path) -> None:
    key = PageKey.provide(tmp_path)
    path = tmp_path / "key"
    path.chmod(0o644)
    assert PageKey.read(tmp_path) is None
    path.rename(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o600)
    path.symlink_to(tmp_path / "mine")
    assert PageKey.read(tmp_path) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert PageKey.read(tmp_path) is None
    assert PageKey.provide(tmp_path).text != key.text
    path.write_text("short")
    assert PageKey.read(tmp_path) is None
    with pytest.raises(ValueError, match="32"):
        PageKey("short")
