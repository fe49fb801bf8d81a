"""Which names the page answers to: a web site must not read it through the user's browser."""

from __future__ import annotations

import http.client
from collections.abc import Sequence

import pytest

from edl_master.adapters.http import StatusServer
from edl_proto.v1 import job_pb2


class Source:
    """A job without content."""

    def status(self) -> job_pb2.JobStatus:
        return job_pb2.JobStatus()

    def events(self, after: int, limit: int) -> Sequence[job_pb2.Event]:
        return ()

    def metrics(self) -> bytes:
        return b"figure 1\n"


def get(server: StatusServer, host: str | None, path: str = "/metrics") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=200)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


@pytest.mark.parametrize(
    "host", ["localhost:1", "LOCALHOST", "127.0.0.1:9", "[::1]:80", "job.localhost:7", None]
)
def test_names_of_this_machine_are_answered(host: str | None) -> None:
    server = StatusServer("127.0.0.1", 0, Source())
    try:
        assert get(server, host) == (200, b"figure 1\n")
    finally:
        server.close()


@pytest.mark.parametrize(
    "host",
    ["evil.example.com", "127.0.0.1.evil.example.com:80", "localhost.evil.com", "a@b", "", "[::1"],
)
@pytest.mark.parametrize("path", ["/", "/api/status", "/api/events", "/metrics"])
def test_a_name_of_another_site_is_answered_with_nothing(host: str, path: str) -> None:
    server = StatusServer("127.0.0.1", 0, Source())
    try:
        status, content = get(server, host, path)
        assert status == 421
        assert b"figure" not in content
        assert b"localhost" in content
    finally:
        server.close()


def test_a_page_for_other_machines_has_any_name() -> None:
    server = StatusServer("0.0.0.0", 0, Source())
    try:
        assert get(server, "page.example.com")[0] == 200
    finally:
        server.close()
