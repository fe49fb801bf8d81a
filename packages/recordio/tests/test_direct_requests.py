"""Ranges over HTTP: exactly what was asked for is read, whatever a server answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from recordio.storage.direct_requests import DirectRequests

CONTENT = bytes(range(256)) * 64
HUGE = 1 << 30


class Server(ThreadingHTTPServer):
    """Serves ``CONTENT``.

    Attributes:
        ignores_ranges: answer 200 with a gibibyte.
        encoding: what the answers claim to be encoded with.
        connections, sent: of all answers.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ignores_ranges = False
        self.encoding = ""
        self.connections = self.sent = 0
        self.ended = threading.Event()

    def requests(self) -> DirectRequests:
        return DirectRequests(lambda: (f"http://127.0.0.1:{self.server_port}/object", {}))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        if self.server.ignores_ranges:
            self.send_response(200)
            self.send_header("Content-Length", str(HUGE))
            self.end_headers()
            with contextlib.suppress(OSError):
                while self.server.sent < HUGE:
                    self.server.sent += self.wfile.write(bytes(1 << 16))
            self.server.ended.set()
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = CONTENT[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(part)))
        if self.server.encoding:
            self.send_header("Content-Encoding", self.server.encoding)
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_ranges_take_one_connection(server: Server) -> None:
    requests = server.requests()
    assert requests.fetch(3, 9) == CONTENT[3:9]
    assert requests.fetch(1000, 5000) == CONTENT[1000:5000]
    assert server.connections == 1


def test_a_server_that_ignores_ranges_is_not_read_to_its_end(server: Server) -> None:
    server.ignores_ranges = True
    requests = server.requests()
    assert requests.fetch(0, 10) is None
    assert server.ended.wait(200), "the connection is closed"
    assert server.sent < HUGE // 8, "what the buffers of the kernel held"
    assert requests.fetch(0, 10) is None
    assert server.connections == 1, "it is not asked again"


def test_what_is_stored_compressed_comes_as_it_is_stored(server: Server) -> None:
    server.encoding = "gzip"
    assert server.requests().fetch(0, 100) == CONTENT[:100]
