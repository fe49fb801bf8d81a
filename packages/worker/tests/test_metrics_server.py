"""Who gets the metrics of a worker."""

from __future__ import annotations

import http.client
import socket

import pytest

from edl_worker.metrics import WorkerMetrics
from edl_worker.metrics_server import MetricsServer

_DEADLINE_S = 200.0
_TOKEN = "f" * 36


@pytest.fixture
def server() -> MetricsServer:
    metrics = WorkerMetrics()
    metrics.steps.inc()
    return MetricsServer(metrics.registry, lambda: False, "127.0.0.1", 0)


def _get(
    server: MetricsServer, authorization: str | None = None, target: str = "/metrics"
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_DEADLINE_S)
    headers = {} if authorization is None else {"Authorization": authorization}
    try:
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_who_has_the_token_gets_the_metrics(server: MetricsServer) -> None:
    server.admit(_TOKEN)
    status, content = _get(server, f"Bearer {_TOKEN}")
    assert status == 200
    assert b"edl_worker_steps_total 1.0" in content
    assert _get(server, f"Bearer {_TOKEN}", "/")[0] == 404


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", f"Basic {_TOKEN}", f"Bearer {_TOKEN[:-1]}", "Bearer \xe9\xff"],
)
def test_other_callers_get_nothing(server: MetricsServer, authorization: str | None) -> None:
    server.admit(_TOKEN)
    status, content = _get(server, authorization)
    assert status == 401
    assert b"edl_worker" not in content


def test_before_the_worker_has_registered_an_empty_token_opens_nothing(
    server: MetricsServer,
) -> None:
    assert _get(server, "Bearer ")[0] == 401
    server.admit("")
    assert _get(server, "Bearer ")[0] == 401


def test_a_job_may_open_its_metrics(server: MetricsServer) -> None:
    server.admit(_TOKEN, open_to_all=True)
    assert _get(server)[0] == 200


def test_health_and_readiness_are_for_all_callers() -> None:
    ready = False
    server = MetricsServer(WorkerMetrics().registry, lambda: ready, "127.0.0.1", 0)
    assert _get(server, None, "/healthz") == (200, b"ok\n")
    assert _get(server, None, "/readyz") == (503, b"this worker takes no tasks\n")
    ready = True
    assert _get(server, None, "/readyz") == (200, b"ready\n")


def test_silent_connections_keep_no_scraper_out(server: MetricsServer) -> None:
    server.admit(_TOKEN)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    try:
        assert _get(server, f"Bearer {_TOKEN}")[0] == 200
        silent[0].settimeout(_DEADLINE_S)
        assert silent[0].recv(1) == b"", "the oldest is hung up on"
    finally:
        for each in silent:
            each.close()
