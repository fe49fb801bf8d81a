"""A service's port for Prometheus, and for probes of the service, over plain HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus

from edl_runtime.monitoring.http_requests import RequestHandler
from edl_runtime.monitoring.http_server import BoundedHttpServer

_REQUEST_TIMEOUT_S = 10
_MAX_CONNECTIONS = 16
"""Limit on open connections; each costs a thread."""
_CLOSE_S = 2.0

_PATHS = b"There are /metrics, /healthz and /readyz.\n"
_NO_TOKEN = b"The metrics need the token of the job's metrics.\n"


class MonitoringServer:
    """Serves ``/metrics``, ``/healthz`` (the process answers) and ``/readyz`` until it is closed.

    Health and readiness need no token. Its threads end with the process.

    Args:
        metrics: all of them, in the text format of Prometheus.
        content_type: of that format.
        not_ready: why the service cannot do its work now, in words; empty if it can.
        host: address to listen on.
        port: 0 for any.
        may_read: whether a request with such a header ``Authorization`` gets the metrics.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self,
        metrics: Callable[[], bytes],
        content_type: str,
        not_ready: Callable[[], str],
        host: str,
        port: int,
        may_read: Callable[[str], bool] = lambda authorization: True,
    ) -> None:
        def answer(path: str, authorization: str) -> tuple[HTTPStatus, bytes]:
            if path == "/healthz":
                return HTTPStatus.OK, b"ok\n"
            if path == "/readyz":
                if reason := not_ready():
                    return HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode()
                return HTTPStatus.OK, b"ready\n"
            if not may_read(authorization):
                return HTTPStatus.UNAUTHORIZED, _NO_TOKEN
            if path == "/metrics":
                return HTTPStatus.OK, metrics()
            return HTTPStatus.NOT_FOUND, _PATHS

        class MonitoringHandler(RequestHandler):
            timeout = _REQUEST_TIMEOUT_S
            server_version, sys_version = "edl", ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                status, content = answer(path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("X-Content-Type-Options", "nosniff")
                if status is HTTPStatus.UNAUTHORIZED:
                    self.send_header("WWW-Authenticate", 'Bearer realm="edl"')
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: there is a request every few seconds."""

        self._server = BoundedHttpServer(host, port, MonitoringHandler, _MAX_CONNECTIONS)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="monitoring", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_S)
