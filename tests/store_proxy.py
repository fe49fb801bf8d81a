"""A proxy before a server of a store: it is slow, refuses, and breaks off, as clouds do."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Fault = int | str | tuple[int, str] | None
"""What happens to a request: a status of HTTP, alone or with the code of an error of S3, ``reset``,
or ``short``: half of the answer."""

_RESET = struct.pack("ii", 1, 0)
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class StoreProxy:
    """Passes requests on to a server.

    Attributes:
        url: of this end.
        latency_s: of every request.
        fault: given method and path of a request, what happens to it.
        requests: method and path of each so far.
    """

    def __init__(self, to: str) -> None:
        self.latency_s = 0.0
        self.fault: Callable[[str, str], Fault] = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self._to = urlsplit(to).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True  # the client is gone

            def pass_on(self) -> None:
                proxy._pass_on(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = pass_on

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append((handler.command, handler.path))
        body = _body_of(handler)
        time.sleep(self.latency_s)
        fault = self.fault(handler.command, handler.path)
        if fault == "reset":
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            handler.connection.close()
            handler.close_connection = True
            return
        if isinstance(fault, int):
            status, headers, content = fault, [], b""
        elif isinstance(fault, tuple):
            status, headers = fault[0], [("Content-Type", "application/xml")]
            content = f"<Error><Code>{fault[1]}</Code><Message>no</Message></Error>".encode()
        else:
            status, headers, content = self._ask(handler, body)
        handler.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                handler.send_header(name, value)
        length = dict(headers).get("Content-Length") if handler.command == "HEAD" else None
        handler.send_header("Content-Length", length or str(len(content)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        handler.wfile.write(content[: len(content) // 2] if fault == "short" else content)
        handler.close_connection |= fault == "short"

    def _ask(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection(self._to, timeout=300)
        try:
            headers = dict(handler.headers)
            headers.pop("Transfer-Encoding", None)
            server.request(handler.command, handler.path, body, {**headers, "Connection": "close"})
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()


def _body_of(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    pieces = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        pieces.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(pieces)
