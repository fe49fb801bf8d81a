"""Connections that say nothing, more of them than a server takes: who asks gets an answer."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import pytest

from edl_runtime.monitoring.http_server import BoundedHttpServer

MAX_CONNECTIONS = 4
DEADLINE_S = 200.0


class Handler(BaseHTTPRequestHandler):
    timeout = 1e6  # time does not help

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = BoundedHttpServer("127.0.0.1", 0, Handler, MAX_CONNECTIONS)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(DEADLINE_S)


def answer(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_silent_connections_keep_no_caller_out(port: int) -> None:
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            for _ in range(5 * MAX_CONNECTIONS)
        ]
        for _ in range(2 * MAX_CONNECTIONS):
            assert answer(port) == b"here"
        for each in silent[:-MAX_CONNECTIONS]:
            assert each.recv(1) == b"", "hung up on"


def test_there_are_never_more_threads_than_connections_may_be(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as opened:
        for _ in range(10 * MAX_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        assert answer(port) == b"here"  # the others have been taken before
        deadline = time.monotonic() + DEADLINE_S
        while threading.active_count() > before + MAX_CONNECTIONS:
            assert time.monotonic() < deadline
            time.sleep(0.01)


FEW_FILES = """
import resource, sys, threading, time
from http.server import BaseHTTPRequestHandler
from edl_runtime.monitoring.http_server import BoundedHttpServer

class Handler(BaseHTTPRequestHandler):
    timeout = 1e6

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

server = BoundedHttpServer("127.0.0.1", 0, Handler, 1000)
threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(server.server_port, flush=True)
sys.stdin.read()
"""


def test_a_process_that_may_open_no_more_files_answers() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FEW_FILES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            port = int(process.stdout.readline())
            with ExitStack() as opened:
                for _ in range(100):
                    opened.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
                assert answer(port) == b"here"
        finally:
            process.stdin.close()
        said = [line for line in process.stderr.read().decode().splitlines() if "ulimit" in line]
    assert len(said) == 1
    assert said[0].startswith("HTTP connections cannot be accepted")
