"""Serves the metrics of one worker to those who have the job's token, and its health to everybody.

The worker listens before it registers, and the master's answer brings the token. Until then nobody
gets the metrics.
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
        self._everybody = False
        server = MonitoringServer(
            lambda: generate_latest(registry),
            CONTENT_TYPE_LATEST,
            lambda: "" if is_ready() else "this worker takes no tasks",
            host,
            port,
            lambda authorization: self._everybody or self._is_bearer(authorization),
        )
        self.port: int = server.port

    def admit(self, token: str, *, everybody: bool = False) -> None:
        """Who gets the metrics from now on.

        Args:
            token: what a scraper must say; empty: nobody can.
            everybody: whoever reaches the port.
        """
        self._token, self._everybody = token, everybody

    def _is_bearer(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        own = self._token.encode()
        return bool(own) and scheme.lower() == "bearer" and hmac.compare_digest(given, own)
