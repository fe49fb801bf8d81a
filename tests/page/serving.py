"""Serves the page's files and a JobStatus that its owner may change at any time."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from google.protobuf import json_format
from google.protobuf.message import Message

from edl_proto.v1.job_pb2 import Event, JobStatus

PAGE = Path(__file__).parents[2] / "packages/master/src/edl_master/page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def to_json(message: Message) -> object:
    """A message as the page's API gives it: original names, defaults included."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


class PageServer:
    """The page of one made-up job on the loopback interface; a context manager.

    Attributes:
        url: address of the page.
        asked: number of times that the status was asked for.
        failure: HTTP status to answer the API with, None to answer properly.
    """

    def __init__(self, status: JobStatus, events: Sequence[Event] = (), port: int = 0) -> None:
        self._lock = threading.Lock()
        self.asked = 0
        self.failure: HTTPStatus | None = None
        self.tell(status, events)
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: the tests' output is theirs."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, status: JobStatus, events: Sequence[Event]) -> None:
        """Answers with these from now on; ``events`` are all events of the job, in order."""
        news = to_json(status), [(event.number, to_json(event)) for event in events]
        with self._lock:
            self._status, self._events = news

    def close(self) -> None:
        """Stops answering; the port is free afterwards."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        address = urlsplit(request.path)
        if address.path.startswith("/api/"):
            if self.failure is not None:
                _send(request, self.failure, "text/plain", b"failing as asked")
                return
            with self._lock:
                if address.path == "/api/status":
                    self.asked += 1
                    answer: object = self._status
                elif address.path == "/api/events":
                    after = int(parse_qs(address.query).get("after", ["0"])[0])
                    answer = [event for number, event in self._events if number > after]
                else:
                    _send(request, HTTPStatus.NOT_FOUND, "text/plain", b"no such address")
                    return
            _send(request, HTTPStatus.OK, "application/json", json.dumps(answer).encode())
            return
        file = PAGE / (address.path.strip("/") or "index.html")
        if file.parent != PAGE or file.suffix not in TYPES or not file.is_file():
            _send(request, HTTPStatus.NOT_FOUND, "text/plain", b"no such address")
            return
        _send(request, HTTPStatus.OK, TYPES[file.suffix], file.read_bytes())


def _send(
    request: BaseHTTPRequestHandler, status: HTTPStatus, content_type: str, content: bytes
) -> None:
    try:
        request.send_response(status)
        request.send_header("Content-Type", content_type)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Content-Security-Policy", "default-src 'self'")
        request.send_header("X-Content-Type-Options", "nosniff")
        request.end_headers()
        request.wfile.write(content)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the browser has closed the tab
