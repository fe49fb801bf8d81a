"""Serves the metrics of one worker to those who have the job's token.

The worker listens before it registers, since it names its port to the master, and the master's
answer brings the token. Until then nobody gets anything.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 10
_MOST_CONNECTIONS = 16
"""At a time: one that says nothing costs a thread of the worker until it is given up."""


class MetricsServer:
    """Serves ``/metrics``; its threads end with the process.

    Args:
        registry: what is served.
        host: address to listen on.
        port: 0 for any.

    Raises:
        OSError: the address is not available.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._registry = registry
        self._token = ""
        self._everybody = False
        free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
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

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True
            # Two workers on one port would show either at random.
            allow_reuse_port = False

            def process_request(self, request: Any, client_address: Any) -> None:
                if not free.acquire(blocking=False):
                    self.shutdown_request(request)
                    return
                try:
                    super().process_request(request, client_address)
                except BaseException:  # no thread was to be had, and none will release it
                    free.release()
                    raise

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    free.release()

            def handle_error(self, request: Any, client_address: Any) -> None:
                log.debug("a reader of the metrics left", exc_info=True)

        server = Server((host, port), Handler)
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
        if not self._everybody and not self._is_bearer(authorization):
            return HTTPStatus.UNAUTHORIZED, b"The metrics need the token of the job's metrics.\n"
        if target.partition("?")[0] != "/metrics":
            return HTTPStatus.NOT_FOUND, b"There is /metrics only.\n"
        return HTTPStatus.OK, generate_latest(self._registry)

    def _is_bearer(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        own = self._token.encode()
        return bool(own) and scheme.lower() == "bearer" and hmac.compare_digest(given, own)
