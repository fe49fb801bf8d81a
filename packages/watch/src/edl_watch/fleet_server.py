"""Serves the page of all jobs on the loopback interface, to the browser that has its link.

The link opens the page once, like that of a job (``edl_runtime.identity.page_key``); its key
lives as long as this server. A click on a job leads to a fresh link of the job's own page.
"""

from __future__ import annotations

import importlib.resources
import json
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.identity.page_key import SESSION_LIFETIME_S, PageKey
from edl_runtime.monitoring.http_requests import RequestHandler
from edl_runtime.monitoring.http_server import BoundedHttpServer

_HOST = "127.0.0.1"
_COOKIE = "edl-fleet"
_MAX_CONNECTIONS = 32
_FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "fleet.js": ("fleet.js", "text/javascript; charset=utf-8"),
    "fleet.css": ("fleet.css", "text/css; charset=utf-8"),
}
_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_CLOSED = (
    b"This page opens by the link that edl dashboard --all has printed: once, in one browser.\n"
    b"For another link, end that command with Ctrl-C and start it again.\n"
)


class FleetServer:
    """The page of all jobs; a context manager.

    Args:
        jobs: the jobs as plain values, newest first; raises EdlError if they cannot be listed.
        page_link: makes a link to the page of a job; raises EdlError.
        port: of this machine; 0 for any free one.

    Raises:
        EdlError: PORT_IN_USE.
    """

    def __init__(
        self,
        jobs: Callable[[], list[dict[str, Any]]],
        page_link: Callable[[str], str],
        port: int,
    ) -> None:
        self._jobs = jobs
        self._page_link = page_link
        self._key = PageKey.create()
        self._used: set[str] = set()
        self._using = threading.Lock()
        fleet = self

        class FleetHandler(RequestHandler):
            timeout = 20
            server_version, sys_version = "edl", ""

            def do_GET(self) -> None:
                fleet._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: requests contain secrets."""

        try:
            self._server = BoundedHttpServer(_HOST, port, FleetHandler, _MAX_CONNECTIONS)
        except OSError as error:
            raise EdlError(
                ErrorCode.PORT_IN_USE,
                f"port {port} is not available: {error.strerror}",
                where=f"{_HOST}:{port}",
                remedy="Choose another --port, or omit it for any free port.",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="fleet-page", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def link(self) -> str:
        """Return a link that opens the page once."""
        return self._key.link(f"http://{_HOST}:{self._server.server_address[1]}/", time.time())

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        try:
            url = urlsplit(request.path)
        except ValueError:  # as //[
            url = urlsplit("")
        home = self._key.home
        if request.headers.get("Host", "").rpartition(":")[0] not in (_HOST, "localhost"):
            _send(request, HTTPStatus.MISDIRECTED_REQUEST, b"This page is for this machine only.\n")
        elif url.path == "/" and (tokens := parse_qs(url.query).get("token")):
            self._exchange(request, tokens[-1])
        elif not url.path.startswith(home) or not self._is_let_in(request):
            _send(request, HTTPStatus.FORBIDDEN, _CLOSED)
        else:
            self._show(request, url.path.removeprefix(home))

    def _exchange(self, request: BaseHTTPRequestHandler, token: str) -> None:
        now = time.time()
        if not self._key.is_link(token):
            _send(request, HTTPStatus.FORBIDDEN, _CLOSED)
            return
        with self._using:
            fresh = self._key.is_fresh_link(token, now) and token not in self._used
            self._used.add(token)
        headers = {"Location": self._key.home}
        if fresh:  # otherwise a browser that has used it is let in by its cookie
            # Browsers send a cookie to every port of a host, but only below its path.
            headers["Set-Cookie"] = (
                f"{_COOKIE}={self._key.session(now)}; Path={self._key.home}; "
                f"Max-Age={SESSION_LIFETIME_S}; HttpOnly; SameSite=Strict"
            )
        _send(request, HTTPStatus.SEE_OTHER, headers=headers)

    def _is_let_in(self, request: BaseHTTPRequestHandler) -> bool:
        try:
            cookie = SimpleCookie(request.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._key.is_session(cookie.value, time.time())

    def _show(self, request: BaseHTTPRequestHandler, path: str) -> None:
        if path == "api/jobs":
            self._list(request)
        elif path.startswith("job/"):
            self._lead_to(request, unquote(path.removeprefix("job/")))
        elif path in _FILES:
            name, kind = _FILES[path]
            content = importlib.resources.files("edl_watch") / "fleet_page" / name
            _send(request, HTTPStatus.OK, content.read_bytes(), kind)
        else:
            _send(request, HTTPStatus.NOT_FOUND, b"not here\n")

    def _list(self, request: BaseHTTPRequestHandler) -> None:
        try:
            jobs = self._jobs()
        except EdlError as error:
            _send(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode())
        else:
            _send(request, HTTPStatus.OK, json.dumps(jobs, allow_nan=False).encode(), _JSON)

    def _lead_to(self, request: BaseHTTPRequestHandler, job: str) -> None:
        try:
            link = self._page_link(job)
        except EdlError as error:
            _send(request, HTTPStatus.NOT_FOUND, f"{error.what}\n{error.remedy}\n".encode())
        else:
            _send(request, HTTPStatus.SEE_OTHER, headers={"Location": link})


def _send(
    request: BaseHTTPRequestHandler,
    status: HTTPStatus,
    content: bytes = b"",
    kind: str = _TEXT,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    request.send_response(status)
    sized = {"Content-Type": kind, "Content-Length": str(len(content))}
    for name, value in {**_HEADERS, **sized, **headers}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(content)
