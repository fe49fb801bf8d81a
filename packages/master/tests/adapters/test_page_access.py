"""Who gets the page and the metrics of a job: its owner, by a link; nobody else does."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edl_master.adapters import page_access
from edl_master.adapters.http import StatusServer
from edl_master.adapters.page_access import Answer, Granted, PageAccess, PageRequest
from edl_master.core.timeline_summary import JobTimes
from edl_proto.identity.page_key import LINK_LIFETIME_S, SESSION_LIFETIME_S, PageKey
from edl_proto.v1 import job_pb2

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
    # Nor does anybody learn the path of the page, or the name of the job.
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


def test_guesses_are_limited_and_keep_nobody_out(
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
def test_health_is_for_everybody(access: PageAccess, path: str) -> None:
    assert ask(access, path) == Granted(path)


# --- over HTTP -----------------------------------------------------------------------------


class Source:
    """A job without content."""

    def __init__(self) -> None:
        self.fails = False

    def status(self) -> job_pb2.JobStatus:
        if self.fails:
            raise RuntimeError("a fault")
        return job_pb2.JobStatus(name="digits")

    def events(self, after: int, limit: int) -> Sequence[job_pb2.Event]:
        return ()

    def times(self) -> JobTimes:
        return JobTimes()

    def metrics(self) -> bytes:
        return b"figure 1\n"

    def is_ready(self) -> bool:
        return not self.fails


@pytest.fixture(scope="module")
def key_of_server() -> PageKey:
    return PageKey.create()


@pytest.fixture(scope="module")
def server(
    key_of_server: PageKey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StatusServer]:
    access = PageAccess(key_of_server, tmp_path_factory.mktemp("page"), "digits")
    serving = StatusServer("127.0.0.1", 0, Source(), access)
    yield serving
    serving.close()


def get(
    server: StatusServer, path: str, host: str | None = "127.0.0.1", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=200)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


@pytest.mark.parametrize(
    "host", ["localhost:1", "LOCALHOST", "127.0.0.1:9", "[::1]:80", "job.localhost:7", None]
)
def test_names_of_this_machine_are_answered(
    server: StatusServer, key_of_server: PageKey, host: str | None
) -> None:
    bearer = f"Bearer {key_of_server.metrics_token}"
    found = get(server, "/metrics", host, Authorization=bearer)
    assert (found[0], found[2]) == (200, b"figure 1\n")


@pytest.mark.parametrize(
    "host",
    ["evil.example.com", "127.0.0.1.evil.example.com:80", "localhost.evil.com", "a@b", "", "[::1"],
)
def test_a_name_of_another_site_is_answered_with_nothing(
    server: StatusServer, key_of_server: PageKey, host: str
) -> None:
    key = key_of_server
    for path in ("/", "/metrics", "/healthz", f"{key.home}api/status"):
        status, _, content = get(
            server,
            path,
            host,
            Authorization=f"Bearer {key.metrics_token}",
            Cookie=f"edl-page={key.session(time.time())}",
        )
        assert status == 421
        assert b"figure" not in content
        assert b"digits" not in content
        assert b"localhost" in content


def test_a_page_for_other_machines_has_any_name(access: PageAccess) -> None:
    server = StatusServer("0.0.0.0", 0, Source(), access)
    try:
        assert get(server, "/healthz", "page.example.com")[0] == 200
    finally:
        server.close()


def test_every_answer_is_locked_down(server: StatusServer, key_of_server: PageKey) -> None:
    for path in ("/", "/metrics", "/healthz", "/?token=wrong", key_of_server.home):
        _, headers, _ = get(server, path)
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_no_secret_of_a_request_is_logged(
    access: PageAccess, key: PageKey, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    source.fails = True
    server = StatusServer("127.0.0.1", 0, source, access)
    link = urlsplit(key.link(OWN, time.time()))
    cookie = f"edl-page={key.session(time.time())}"
    try:
        with caplog.at_level(logging.DEBUG):
            get(server, f"/?{link.query}")
            assert get(server, f"{key.home}api/status", Cookie=cookie)[0] == 500
            get(server, "/metrics", Authorization=f"Bearer {key.metrics_token}")
            get(server, f"/?{link.query}", "[::1")
    finally:
        server.close()
    for secret in (link.query, cookie.partition("=")[2], key.home, key.metrics_token, key.text):
        assert secret not in caplog.text


def test_readiness_is_no_secret(access: PageAccess) -> None:
    source = Source()
    server = StatusServer("127.0.0.1", 0, source, access)
    try:
        assert get(server, "/readyz")[0] == 200
        source.fails = True
        assert get(server, "/readyz")[0] == 503
        assert get(server, "/healthz")[0] == 200
    finally:
        server.close()


def test_idle_connections_are_limited(access: PageAccess) -> None:
    server = StatusServer("127.0.0.1", 0, Source(), access)
    idle = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=200) for _ in range(160)]
    for each in idle:
        each.connect()
    try:
        closed = 0
        for each in reversed(idle):
            assert each.sock is not None
            each.sock.setblocking(False)
        while closed < 32:
            for each in idle:
                try:
                    if each.sock is not None and each.sock.recv(1) == b"":
                        closed += 1
                        each.close()
                except BlockingIOError:
                    pass
    finally:
        for each in idle:
            each.close()


def test_a_connection_that_gets_no_thread_leaves_its_place_to_others(
    access: PageAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StatusServer("127.0.0.1", 0, Source(), access)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "process_request_thread" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(160):  # more than there are places
                with pytest.raises((http.client.HTTPException, OSError)):
                    get(server, "/healthz")
        assert get(server, "/healthz")[0] == 200
    finally:
        server.close()
