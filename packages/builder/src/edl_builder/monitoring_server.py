"""The builder's port for Prometheus and for whoever watches over the service, over plain HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edl_proto.http_server import BoundedHttpServer

_REQUEST_TIMEOUT_S = 10
_MOST_CONNECTIONS = 16
_CLOSE_S = 2.0


class MonitoringServer:
    """Serves ``/metrics``, ``/healthz`` (the process answers) and ``/readyz`` until it is closed.

    Args:
        registry: what is served.
        is_ready: whether the builder can build.
        host: address to listen on.
        port: 0 for any.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self, registry: CollectorRegistry, is_ready: Callable[[], bool], host: str, port: int
    ) -> None:
        def answer(path: str) -> tuple[HTTPStatus, bytes]:
            match path:
                case "/metrics":
                    return HTTPStatus.OK, generate_latest(registry)
                case "/healthz":
                    return HTTPStatus.OK, b"ok\n"
                case "/readyz" if is_ready():
                    return HTTPStatus.OK, b"ready\n"
                case "/readyz":
                    return HTTPStatus.SERVICE_UNAVAILABLE, b"the engine does not answer\n"
                case _:
                    return HTTPStatus.NOT_FOUND, b"There are /metrics, /healthz and /readyz.\n"

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_TIMEOUT_S
            server_version, sys_version = "edl", ""

            def do_GET(self) -> None:
                status, content = answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE_LATEST)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: there is a request every few seconds."""

        self._server = BoundedHttpServer(host, port, Handler, _MOST_CONNECTIONS)
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
