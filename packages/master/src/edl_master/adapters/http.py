"""The job's page, the same data as JSON, and metrics, over plain HTTP. Read only.

``page_access`` decides who gets them. On a loopback address the page also answers only to names
of this machine, and not to a name of a web site that leads to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import importlib.resources
import ipaddress
import json
import logging
import mimetypes
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib.resources.abc import Traversable
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs, urlsplit

from edl_master.adapters.job_directory import to_json
from edl_master.adapters.page_access import (
    HEALTH,
    HTML,
    METRICS,
    READINESS,
    TEXT,
    Answer,
    PageAccess,
    PageRequest,
)
from edl_master.adapters.saved_page import saved_page
from edl_master.adapters.tcp_ports import address_in_use
from edl_master.adapters.timeline_json import timeline_json
from edl_master.core.timeline_summary import JobTimes
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.http_requests import RequestHandler
from edl_runtime.monitoring.http_server import BoundedHttpServer

log = logging.getLogger(__name__)

PAGE = "page"
"""Folder of the package with the page's files."""

_EVENTS_AT_ONCE = 1000
_REQUEST_TIMEOUT_S = 20
_JSON = "application/json; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

# The page is self-contained; nothing that it shows may load or send anything elsewhere.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_MAX_CONNECTIONS = 128
"""At a time; each costs a thread of the master."""

_CLOSE_S = 5.0
"""How long the listener may take to end."""


class StatusSource(Protocol):
    """The source of the answers."""

    def status(self) -> job_pb2.JobStatus:
        """Return the present status of the job."""

    def events(self, after: int, limit: int) -> Sequence[job_pb2.Event]:
        """Return the events with numbers above ``after``, oldest first."""

    def times(self) -> JobTimes:
        """Return where the time of the workers went."""

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus's text format."""

    def is_ready(self) -> bool:
        """Return whether workers can work."""


class StatusServer:
    """Serves one job's page until it is closed.

    Args:
        host: address to listen on.
        port: 0 for any.
        source: where the answers come from.
        access: who gets them.
        page: the page's files; those of the package by default.

    Raises:
        EdlError: PORT_IN_USE, or USAGE for an address that this machine does not have.
    """

    def __init__(
        self,
        host: str,
        port: int,
        source: StatusSource,
        access: PageAccess,
        page: Traversable | None = None,
    ) -> None:
        files = page or importlib.resources.files("edl_master") / PAGE

        class PageHandler(_Handler):
            answers: ClassVar[_Answers] = _Answers(source, files)
            page_access: ClassVar[PageAccess] = access
            only_by_own_names = _is_loopback(host)

        try:
            self._server = BoundedHttpServer(host, port, PageHandler, _MAX_CONNECTIONS)
        except OSError as error:
            raise address_in_use(error, host, port, "--dashboard-port") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_S)


class _Answers:
    """The answers to requests: from path and query to content type and content."""

    def __init__(self, source: StatusSource, page: Traversable) -> None:
        self._source = source
        self._page = page
        self._fixed: dict[str, Callable[[dict[str, list[str]]], tuple[str, bytes]]] = {
            "/api/status": self._status,
            "/api/events": self._events,
            "/api/timeline": lambda _: (_JSON, timeline_json(self._source.times()).encode()),
            "/saved": self._saved_page,
            METRICS: lambda _: (_METRICS, self._source.metrics()),
            HEALTH: lambda _: (TEXT, b"ok\n"),
        }

    def get(self, target: str) -> tuple[HTTPStatus, str, bytes]:
        url = urlsplit(target)
        if url.path == READINESS:
            return self._readiness()
        try:
            if answer := self._fixed.get(url.path):
                return HTTPStatus.OK, *answer(parse_qs(url.query))
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _JSON, json.dumps({"error": str(error)}).encode()
        return self._file(url.path)

    def _readiness(self) -> tuple[HTTPStatus, str, bytes]:
        if self._source.is_ready():
            return HTTPStatus.OK, TEXT, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"parameter servers start\n"

    def _status(self, _: dict[str, list[str]]) -> tuple[str, bytes]:
        return _JSON, to_json(self._source.status()).encode()

    def _saved_page(self, _: dict[str, list[str]]) -> tuple[str, bytes]:
        source = self._source
        return HTML, saved_page(source.status(), source.events, source.times(), self._page)

    def _events(self, query: dict[str, list[str]]) -> tuple[str, bytes]:
        text = query.get("after", ["0"])[-1]
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"after must be the number of an event, not {text[:40]!r}")
        events = self._source.events(int(text[:18]), _EVENTS_AT_ONCE)
        return _JSON, f"[{','.join(to_json(e) for e in events)}]".encode()

    def _file(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        # Only names that are really there, one level at a time: nothing leads out of the folder.
        found = self._page
        parts = [part for part in path.split("/") if part] or ["index.html"]
        for part in parts:
            inside = found.iterdir() if found.is_dir() else ()
            match = next((each for each in inside if each.name == part), None)
            if match is None or part.startswith((".", "__")):
                return HTTPStatus.NOT_FOUND, TEXT, b"not here\n"
            found = match
        if not found.is_file():
            return HTTPStatus.NOT_FOUND, TEXT, b"not here\n"
        kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
        if kind.startswith("text/") or kind in ("application/javascript", "image/svg+xml"):
            kind += "; charset=utf-8"
        return HTTPStatus.OK, kind, found.read_bytes()


class _Handler(RequestHandler):
    answers: ClassVar[_Answers]
    page_access: ClassVar[PageAccess]
    only_by_own_names: ClassVar[bool]
    protocol_version = "HTTP/1.1"
    server_version = "edl"
    sys_version = ""
    timeout = _REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def _answer(self, *, with_content: bool) -> None:
        try:
            answer = self._find()
        except Exception:
            log.exception("a request to the page failed")  # without its path, which has secrets
            answer = Answer(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                content=b"This is an internal error of edl; the master's log has the traceback.\n",
            )
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("Cache-Control", "no-store")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(answer.content)

    def _find(self) -> Answer:
        if self.only_by_own_names and not _is_own_name(self.headers.get("Host", "localhost")):
            return Answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                content=b"This page answers to localhost and 127.0.0.1 only.\n",
            )
        # The first of repeated headers counts.
        headers = {name.title(): text for name, text in reversed(self.headers.items())}
        request = PageRequest(self.path, headers, is_get=self.command == "GET")
        decision = self.page_access.decide(request, time.time())
        if isinstance(decision, Answer):
            return decision
        return Answer(*self.answers.get(decision.target))

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests have secrets in them."""


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_own_name(header: str) -> bool:
    """Return whether a Host header names this machine in a way that no other site can.

    An address is as good as a name: a browser has it from the user, and not from a name server.
    """
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
