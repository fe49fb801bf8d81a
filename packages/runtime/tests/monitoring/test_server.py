"""A service's port for Prometheus reads requests as every proxy does."""

from __future__ import annotations

from edl_runtime.monitoring.server import MonitoringServer
from edl_testing.http_requests import check_framing


def test_a_body_is_never_a_request() -> None:
    server = MonitoringServer(lambda: b"", "text/plain", lambda: "", "127.0.0.1", 0)
    try:
        check_framing(server.port, "/healthz")
    finally:
        server.close()
