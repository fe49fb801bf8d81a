"""Strangers at the page of all jobs: none gets anything, whatever they ask and say."""

from __future__ import annotations

import http.client
import itertools
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from edl_runtime.identity.page_key import PageKey
from edl_testing.http_requests import check_framing
from edl_watch.fleet_server import FleetServer

WAIT_S = 120.0
OTHER = PageKey.create()
TARGETS = (
    *("/", "//", "//[", "/[", "/api/jobs", "/job/mine", "/fleet.js", "/../api/jobs", "/%00", "*"),
    *("/?token=", "/?token=%ff", "/?token=A&token=B", f"/?{'token=x&' * 500}", "http://[/"),
    *(OTHER.home, f"{OTHER.home}api/jobs", f"{OTHER.home}job/mine", "/" + "a" * 60_000),
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Cookie": "edl-fleet=" + "A" * 40},
    {"Cookie": 'edl-fleet="; Path=/'},
    {"Cookie": f"edl-fleet={OTHER.session(1_790_000_000)}"},
    {"Authorization": f"Bearer {OTHER.metrics_token}"},
)
HOSTS = ("evil.example", "127.0.0.1.evil.example:{port}", "", "[::1", "127.0.0.1", "localhost@x:1")


@pytest.fixture
def port() -> Iterator[int]:
    with FleetServer(lambda: [{"job": "mine"}], lambda name: "http://127.0.0.1:1/", 0) as server:
        yield int(server.link().split("/")[2].rpartition(":")[2])


def ask(port: int, verb: str, target: str, headers: dict[str, str], host: str = "") -> int:
    """The status of an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
        connection.putrequest(verb, "/", skip_host=True)
        # Past the checks of the library.
        connection._buffer[0] = f"{verb} {target} HTTP/1.1".encode("latin-1")  # type: ignore[attr-defined]  # private
        connection.putheader("Host", host or f"127.0.0.1:{port}")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status


def test_strangers_get_nothing(port: int) -> None:
    for target, headers in itertools.product(TARGETS, HEADERS):
        assert ask(port, "GET", target, headers) in (400, 403, 414, 431), (target[:60], headers)
    for verb in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "X" * 99):
        for target in ("/", "/api/jobs", "/job/mine"):
            assert ask(port, verb, target, {}) in (400, 501), (verb, target)
    for host in HOSTS:
        assert ask(port, "GET", "/", {}, host.format(port=port) or " ") in (400, 421), host
    for octets in (b"\0" * 4096, b"\xff" * 4096, b"\x16\x03\x01", b"GET\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as one:
            one.sendall(octets)
            one.shutdown(socket.SHUT_WR)
            assert b"200" not in one.makefile("rb").readline()


def test_a_body_is_never_a_request(port: int) -> None:
    check_framing(port, "/")
