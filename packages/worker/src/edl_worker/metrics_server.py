"""Serves the metrics of one worker to clients with the job's token, and its health to all.

The worker listens before it registers, and the master's answer brings the token. Until then the
metrics are not served.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from edl_runtime.monitoring.server import MonitoringServer


class MetricsServer:
    """The worker's monitoring server, and who gets the metrics from it.

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
        self._token = ""
        self._open_to_all = False
        server = MonitoringServer(
            lambda: generate_latest(registry),
            CONTENT_TYPE_LATEST,
            lambda: "" if is_ready() else "this worker takes no tasks",
            host,
            port,
            lambda authorization: self._open_to_all or self._is_bearer(authorization),
        )
        self.port: int = server.port

    def admit(self, token: str, *, open_to_all: bool = False) -> None:
        """Set who gets the metrics from now on.

        Args:
            token: the token that a scraper must send; empty: none is accepted.
            open_to_all: serve anyone who reaches the port.
        """
        self._token, self._open_to_all = token, open_to_all

    def _is_bearer(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        own = self._token.encode()
        return bool(own) and scheme.lower() == "bearer" and hmac.compare_digest(given, own)
