"""Serves the metrics of one worker to those who have the job's token, and its health to everybody.

The worker listens before it registers, since it names its port to the master, and the master's
answer brings the token. Until then nobody gets the metrics.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edl_proto.http_server import BoundedHttpServer

_REQUEST_TIMEOUT_S = 10
_MOST_CONNECTIONS = 16
"""At a time; each costs a thread of the worker."""


class MetricsServer:
    """Serves ``/metrics``, ``/healthz`` (the process answers) and ``/readyz``.

    Its threads end with the process.

    Args:
        registry: what is served.
        is_ready: whether the worker takes tasks.
        host: address to listen on.
        port: 0 for any.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self, registry: CollectorRegistry, is_ready: Callable[[], bool], host: str, port: int
    ) -> None:
        self._registry = registry
        self._is_ready = is_ready
        self._token = ""
        self._everybody = False
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_TIMEOUT_S
            server_version, sys_version = "edl", ""

            def do_GET(self) -> None:
                status, content = answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE_LATEST)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("X-Content-Type-Options", "nosniff")
                if status is HTTPStatus.UNAUTHORIZED:
                    self.send_header("WWW-Authenticate", 'Bearer realm="edl"')
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing of a request is logged."""

        server = BoundedHttpServer(host, port, Handler, _MOST_CONNECTIONS)
        self.port: int = server.server_address[1]
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def admit(self, token: str, *, everybody: bool = False) -> None:
        """Who gets the metrics from now on.

        Args:
            token: what a scraper must say; empty: nobody can.
            everybody: whoever reaches the port.
        """
        self._token, self._everybody = token, everybody

    def _answer(self, target: str, authorization: str) -> tuple[HTTPStatus, bytes]:
        path = target.partition("?")[0]
        if path == "/healthz":
            return HTTPStatus.OK, b"ok\n"
        if path == "/readyz":
            if self._is_ready():
                return HTTPStatus.OK, b"ready\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, b"this worker takes no tasks\n"
        if not self._everybody and not self._is_bearer(authorization):
            return HTTPStatus.UNAUTHORIZED, b"The metrics need the token of the job's metrics.\n"
        if path != "/metrics":
            return HTTPStatus.NOT_FOUND, b"There are /metrics, /healthz and /readyz.\n"
        return HTTPStatus.OK, generate_latest(self._registry)

    def _is_bearer(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        own = self._token.encode()
        return bool(own) and scheme.lower() == "bearer" and hmac.compare_digest(given, own)
