"""Ranges over HTTP: exactly what was asked for is read, whatever a server answers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from recordio.storage import direct_requests
from recordio.storage.direct_requests import DirectRequests

CONTENT = bytes(range(256)) * 64
HUGE = 1 << 30


class Server(ThreadingHTTPServer):
    """Serves ``CONTENT``.

    Attributes:
        ignores_ranges: answer 200 with a gibibyte.
        encoding: what the answers claim to be encoded with.
        sends: only the beginning of an answer, and closes the connection; None: all of it.
        closes: every connection after its answer, without a word of that.
        connections, sent: of all answers.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ignores_ranges = False
        self.encoding = ""
        self.sends: int | None = None
        self.closes = False
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
        self.wfile.write(part[: self.server.sends])
        self.close_connection = self.server.closes or self.server.sends is not None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
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


def test_a_server_that_refused_is_asked_again_after_a_while_with_a_new_signature(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_requests, "_VALID_S", 0.1)
    addresses = iter(("http://127.0.0.1:1/expired", f"http://127.0.0.1:{server.server_port}/new"))
    requests = DirectRequests(lambda: (next(addresses), {}))
    monkeypatch.setattr(direct_requests, "proxy_bypass", lambda host: False)
    monkeypatch.setattr(direct_requests, "getproxies", lambda: {"http": "http://127.0.0.1:1"})
    assert requests.fetch(0, 10) is None
    monkeypatch.setattr(direct_requests, "getproxies", dict)
    time.sleep(0.2)
    assert requests.fetch(0, 10) == CONTENT[:10]


def test_what_is_stored_compressed_comes_as_it_is_stored(server: Server) -> None:
    server.encoding = "gzip"
    assert server.requests().fetch(0, 100) == CONTENT[:100]


def test_a_connection_that_the_server_has_closed_is_not_used_again(server: Server) -> None:
    server.closes = True
    requests = server.requests()
    for start in range(5):
        assert requests.fetch(start, 900) == CONTENT[start:900]
    assert server.connections == 5


def test_an_answer_that_is_cut_short_is_none_and_its_connection_is_closed(server: Server) -> None:
    requests = server.requests()
    server.sends = 10
    assert requests.fetch(0, 100) is None
    server.sends = None
    assert requests.fetch(0, 100) == CONTENT[:100]
    assert server.connections == 2


def test_many_threads_get_their_own_ranges_and_connections_are_kept(server: Server) -> None:
    requests = server.requests()
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(
            lambda at: requests.fetch(at, at + 777) == CONTENT[at : at + 777], range(400)
        )
        assert all(found)
    assert server.connections <= 8


def test_a_child_process_does_not_use_the_connections_of_its_parent(server: Server) -> None:
    requests = server.requests()
    assert requests.fetch(3, 9) == CONTENT[3:9]
    child = os.fork()
    if not child:
        os._exit(requests.fetch(1, 5) != CONTENT[1:5] or server.connections)
    assert os.waitpid(child, 0)[1] >> 8 == 1, "that of the parent, which the child has a copy of"
    assert requests.fetch(3, 9) == CONTENT[3:9]
    assert server.connections == 2
