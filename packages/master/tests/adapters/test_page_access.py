"""Who gets the page and the metrics of a job: its owner, by a link, and no other user."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edl_master.adapters import page_access
from edl_master.adapters.page_access import Answer, Granted, PageAccess, PageRequest
from edl_runtime.identity.page_key import LINK_LIFETIME_S, SESSION_LIFETIME_S, PageKey

NOW = 1_790_000_000.0
OWN = "http://127.0.0.1:7000/"


@pytest.fixture
def key() -> PageKey:
    return PageKey.create()


@pytest.fixture
def access(key: PageKey, tmp_path: Path) -> PageAccess:
    return PageAccess(key, tmp_path, "digits")


def ask(
    access: PageAccess, target: str, headers: Mapping[str, str] = {}, now: float = NOW, **more: bool
) -> Granted | Answer:
    own = {"Host": "127.0.0.1:7000", **headers}
    return access.decide(PageRequest(target, own, **more), now)


def click(access: PageAccess, link: str, now: float = NOW, **headers: str) -> Answer:
    url = urlsplit(link)
    answer = ask(access, f"{url.path}?{url.query}", headers, now)
    assert isinstance(answer, Answer)
    return answer


def session(answer: Answer) -> dict[str, str]:
    """The header of the next request of the browser that got this answer."""
    return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def is_closed(answer: Granted | Answer) -> bool:
    return isinstance(answer, Answer) and answer.status == HTTPStatus.FORBIDDEN


# --- links ---------------------------------------------------------------------------------


def test_a_link_is_worth_a_session_once(access: PageAccess, key: PageKey) -> None:
    link = key.link(OWN, NOW)
    first = click(access, link)
    assert first.status == HTTPStatus.SEE_OTHER
    assert first.headers["Location"] == key.home
    assert ask(access, key.home, session(first)) == Granted("/")
    assert ask(access, f"{key.home}api/events?after=3", session(first)) == Granted(
        "/api/events?after=3"
    )
    # Clicked again, it leads to the page, where only the browser of the first click is let in.
    second = click(access, link)
    assert second.status == HTTPStatus.SEE_OTHER
    assert "Set-Cookie" not in second.headers
    assert is_closed(ask(access, second.headers["Location"]))
    assert ask(access, second.headers["Location"], session(first)) == Granted("/")


def test_a_closed_page_says_how_to_get_a_link(access: PageAccess, key: PageKey) -> None:
    closed = ask(access, key.home)
    assert isinstance(closed, Answer)
    assert is_closed(closed)
    assert b"<code>edl dashboard digits</code>" in closed.content
    elsewhere = ask(access, "/")  # who does not know the path of the page learns no name
    assert isinstance(elsewhere, Answer)
    assert b"digits" not in elsewhere.content


def test_the_cookie_stays_with_this_page_and_in_the_browser(
    access: PageAccess, key: PageKey
) -> None:
    cookie = click(access, key.link(OWN, NOW)).headers["Set-Cookie"]
    attributes = cookie.split("; ")[1:]
    assert set(attributes) == {
        f"Path={key.home}",
        f"Max-Age={SESSION_LIFETIME_S}",
        "HttpOnly",
        "SameSite=Strict",
    }
    over_tls = click(access, key.link(OWN, NOW), **{"X-Forwarded-Proto": "https"})
    assert over_tls.headers["Set-Cookie"].endswith("; Secure")


def test_a_restarted_master_knows_sessions_and_used_links(key: PageKey, tmp_path: Path) -> None:
    used, waiting = key.link(OWN, NOW), key.link(OWN, NOW)
    before = PageAccess(PageKey.provide(tmp_path, key.text), tmp_path, "digits")
    cookie = session(click(before, used))
    after = PageAccess(PageKey.provide(tmp_path), tmp_path, "digits")
    assert ask(after, key.home, cookie) == Granted("/")
    assert "Set-Cookie" not in click(after, used).headers
    assert "Set-Cookie" in click(after, waiting).headers


def test_a_link_that_cannot_be_noted_is_used_up_all_the_same(key: PageKey, tmp_path: Path) -> None:
    access = PageAccess(key, tmp_path / "missing", "digits")
    link = key.link(OWN, NOW)
    assert "Set-Cookie" in click(access, link).headers
    assert "Set-Cookie" not in click(access, link).headers


def test_links_and_sessions_end(access: PageAccess, key: PageKey) -> None:
    link = key.link(OWN, NOW)
    late = click(access, link, NOW + LINK_LIFETIME_S + 1)
    assert "Set-Cookie" not in late.headers
    cookie = session(click(access, link))
    assert ask(access, key.home, cookie, NOW + SESSION_LIFETIME_S) == Granted("/")
    assert is_closed(ask(access, key.home, cookie, NOW + SESSION_LIFETIME_S + 1))


def test_a_look_ahead_does_not_use_a_link_up(access: PageAccess, key: PageKey) -> None:
    url = urlsplit(key.link(OWN, NOW))
    looked = ask(access, f"{url.path}?{url.query}", is_get=False)
    assert isinstance(looked, Answer)
    assert "Set-Cookie" not in looked.headers
    assert "Set-Cookie" in click(access, url.geturl()).headers


# --- strangers -----------------------------------------------------------------------------


def test_without_a_session_nothing_is_shown(access: PageAccess, key: PageKey) -> None:
    stranger = PageKey.create()
    cookies: list[dict[str, str]] = [
        {},
        {"Cookie": ""},
        {"Cookie": "edl-page="},
        {"Cookie": f"edl-page={stranger.session(NOW)}"},
        {"Cookie": f"other={key.session(NOW)}"},
        {"Cookie": "\0;=;"},
        {"Authorization": f"Bearer {key.metrics_token}"},
    ]
    paths = (
        "",
        "api/status",
        "api/events",
        "api/timeline",
        "metrics",
        "page.js",
        "nothing",
        "../healthz",
    )
    for headers in cookies:
        for path in paths:
            answer = ask(access, f"{key.home}{path}", headers)
            assert is_closed(answer), (headers, path)
    # Nor does a caller learn the path of the page, or the name of the job.
    cookie = {"Cookie": f"edl-page={key.session(NOW)}"}
    for target in (
        "/",
        "/api/status",
        "/x/",
        f"/{key.home}",
        key.home[:-1],
        "//",
        "//[",  # no valid URL
        f"/?token={key}",
    ):
        answer = ask(access, target, cookie)
        assert is_closed(answer), target
        assert isinstance(answer, Answer)
        assert b"edl dashboard NAME" in answer.content
        assert b"digits" not in answer.content


def test_who_knows_the_page_is_told_how_to_get_in(key: PageKey, tmp_path: Path) -> None:
    access = PageAccess(key, tmp_path, "a<b")
    answer = ask(access, key.home)
    assert isinstance(answer, Answer)
    assert b"edl dashboard a&lt;b" in answer.content
    assert b"refresh" not in answer.content


def test_a_browser_that_comes_from_another_site_asks_again(
    access: PageAccess, key: PageKey
) -> None:
    # It keeps the cookie back for the first request, and gives it for the page's own.
    came = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    answer = ask(access, key.home, came)
    assert is_closed(answer)
    assert isinstance(answer, Answer)
    assert b'http-equiv="refresh" content="0"' in answer.content


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example.com"},
        {"Origin": "http://127.0.0.1:6666"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_another_site_gets_nothing_with_the_browsers_cookie(
    access: PageAccess, key: PageKey, headers: dict[str, str]
) -> None:
    cookie = {"Cookie": f"edl-page={key.session(NOW)}"}
    scraper = {"Authorization": f"Bearer {key.metrics_token}"}
    assert is_closed(ask(access, f"{key.home}api/status", {**cookie, **headers}))
    assert is_closed(ask(access, "/metrics", {**scraper, **headers}))
    token = urlsplit(key.link(OWN, NOW)).query
    assert is_closed(ask(access, f"/?{token}", headers))
    own = {"Origin": "http://127.0.0.1:7000", "Sec-Fetch-Site": "same-origin"}
    assert ask(access, f"{key.home}api/status", {**cookie, **own}) == Granted("/api/status")


def test_guesses_are_limited_and_keep_no_user_out(
    access: PageAccess, key: PageKey, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    answers = []
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            answers += [ask(access, "/metrics", wrong), ask(access, "/?token=wrong")]
            answers.append(ask(access, key.home, {"Cookie": "edl-page=wrong"}))
    statuses = [answer.status for answer in answers if isinstance(answer, Answer)]
    assert statuses[60:] == [HTTPStatus.TOO_MANY_REQUESTS] * 60
    assert HTTPStatus.TOO_MANY_REQUESTS not in statuses[:60]
    # Threads that earlier tests have left may warn of something else.
    assert len([each for each in caplog.records if each.name == page_access.__name__]) == 1
    right = {"Authorization": f"Bearer {key.metrics_token}"}
    assert ask(access, "/metrics", right) == Granted("/metrics")
    assert "Set-Cookie" in click(access, key.link(OWN, NOW)).headers
    later = ask(access, "/metrics", wrong, NOW + 61)
    assert isinstance(later, Answer)
    assert later.status == HTTPStatus.UNAUTHORIZED


# --- metrics and health --------------------------------------------------------------------


def test_metrics_take_their_own_token_and_no_other(access: PageAccess, key: PageKey) -> None:
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} {key.metrics_token}"}
        assert ask(access, "/metrics", headers) == Granted("/metrics")
    for given in (
        "",
        "Bearer",
        "Bearer ",
        f"Basic {key.metrics_token}",
        f"Bearer {key.text}",
        f"Bearer {key.metrics_token}x",
        "Bearer \udcff",
    ):
        answer = ask(access, "/metrics", {"Authorization": given} if given else {})
        assert isinstance(answer, Answer), given
        assert answer.status == HTTPStatus.UNAUTHORIZED
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    cookie = session(click(access, key.link(OWN, NOW)))
    assert ask(access, f"{key.home}metrics", cookie) == Granted("/metrics")


def test_metrics_may_be_open_and_the_page_is_not(key: PageKey, tmp_path: Path) -> None:
    access = PageAccess(key, tmp_path, "digits", open_metrics=True)
    assert ask(access, "/metrics") == Granted("/metrics")
    assert is_closed(ask(access, key.home))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_for_all_callers(access: PageAccess, path: str) -> None:
    assert ask(access, path) == Granted(path)
