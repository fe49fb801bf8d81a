"""The status server over HTTP: what it answers, logs, and how many it serves."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edl_master.adapters.http import StatusServer
from edl_master.adapters.page_access import PageAccess
from edl_master.core.timeline_summary import JobTimes
from edl_proto.v1 import job_pb2
from edl_runtime.identity.page_key import PageKey
from edl_testing.http_requests import check_framing, count_answers


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


@pytest.fixture
def key() -> PageKey:
    return PageKey.create()


@pytest.fixture
def access(key: PageKey, tmp_path: Path) -> PageAccess:
    return PageAccess(key, tmp_path, "digits")


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
    link = urlsplit(key.link("http://127.0.0.1:7000/", time.time()))
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


def test_a_body_is_never_a_request(server: StatusServer) -> None:
    check_framing(server.port, "/healthz")


def test_requests_without_a_body_share_a_connection(server: StatusServer) -> None:
    for more in ("", "Content-Length: 0\r\n", "Expect: 100-continue\r\n"):
        request = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()
        assert count_answers(server.port, request) == 2, more
