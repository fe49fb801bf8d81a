"""What the builder says of itself over HTTP."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest
from fakes import FakeEngine, FakeRegistry

from edl_builder.control import engine_monitor
from edl_builder.control.engine_monitor import EngineMonitor
from edl_builder.metrics import Metrics
from edl_runtime.monitoring.server import MonitoringServer

DEADLINE_S = 200.0


class Engine(FakeEngine):
    """Tells how often it was asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked = threading.Semaphore(0)

    def ping(self) -> None:
        try:
            super().ping()
        finally:
            self.asked.release()

    def wait_asked(self) -> None:
        """Until an answer that is given from now on was taken."""
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(3):  # one may be under way; the last one comes after the others' results
            assert self.asked.acquire(timeout=DEADLINE_S)


@pytest.fixture
def engine() -> Engine:
    return Engine(FakeRegistry())


@pytest.fixture
def server(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[MonitoringServer]:
    monkeypatch.setattr(engine_monitor, "_EVERY_S", 0.01)
    metrics = Metrics()
    monitor = EngineMonitor(engine, metrics)
    server = MonitoringServer(
        metrics.text,
        "text/plain",
        lambda: "" if monitor.is_ready else "the engine does not answer",
        "127.0.0.1",
        0,
    )
    yield server
    server.close()
    monitor.close()


def get(server: MonitoringServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_builder_is_ready_while_its_engine_answers(
    server: MonitoringServer, engine: Engine
) -> None:
    for down, status in ((False, 200), (True, 503), (False, 200)):
        engine.down = down
        engine.wait_asked()
        assert get(server, "/readyz")[0] == status
        assert f"\nedl_image_builder_ready {0.0 if down else 1.0}\n" in get(server, "/metrics")[1]
        assert get(server, "/healthz") == (200, "ok\n")


def test_nothing_else_is_served(server: MonitoringServer) -> None:
    assert get(server, "/")[0] == 404
    assert get(server, "/metrics/..")[0] == 404
