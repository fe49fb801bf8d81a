"""A platform of containers while the companion of the master's container is replaced.

The promises of every platform are tested with real containers: tests/builder/test_containers.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edl_master.adapters import containers
from edl_master.adapters.containers import LocalContainers
from edl_master.core.events import InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import LiveInstance
from edl_runtime.local import container_calls
from edl_runtime.local.container_calls import CallListener

LEFT = ("edl-job-worker-0-0-aaaaaaaa", "edl-job-worker-1-2-bbbbbbbb")


class Companion:
    """Knows two containers: the first has ended, the second runs until ``over``."""

    def __init__(self) -> None:
        self.listed = [
            {"instance": LEFT[0], "worker": 0, "attempt": 0, "log_start": 0, "running": False},
            {"instance": LEFT[1], "worker": 1, "attempt": 2, "log_start": 0, "running": True},
        ]
        self.removed: list[str] = []
        self.over = threading.Event()

    def handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request:
            case {"call": "list"}:
                return {"containers": self.listed}
            case {"call": "wait"}:
                self.over.wait()
                return {"state": "gone"}
            case {"call": "remove", "instance": str(instance)}:
                self.removed.append(instance)
        return {}


@pytest.fixture
def companion() -> Iterator[Companion]:
    made = Companion()
    yield made
    made.over.set()


@pytest.fixture
def platform(companion: Companion, tmp_path: Path) -> Iterator[LocalContainers]:
    made = LocalContainers(lambda worker: ["x"], {}, "job", tmp_path)
    yield made
    companion.over.set()
    made.close(0)


def _take_and_release(lock: threading.Condition) -> bool:
    """Whether nobody else holds it."""
    if not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


@pytest.mark.parametrize("away", ["list", "remove"])
def test_a_companion_that_is_being_replaced_is_waited_for(
    companion: Companion,
    platform: LocalContainers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: str,
) -> None:
    monkeypatch.setattr(containers, "_AGAIN_S", 0.001)
    failures, is_free = iter(range(3)), list[bool]()

    def others_get_the_lock() -> bool:
        with ThreadPoolExecutor(1) as another:
            return another.submit(_take_and_release, platform._changed).result()

    def call(job_dir: Path, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if request["call"] in ("list", "remove"):
            is_free.append(others_get_the_lock())
        if request["call"] == away and next(failures, None) is not None:
            raise ConnectionRefusedError
        return container_calls.call(job_dir, request, timeout_s)

    monkeypatch.setattr(containers, "call", call)
    with CallListener(tmp_path, companion.handle):
        assert platform.adopt() == (LiveInstance(WorkerId(1), 2, InstanceId(LEFT[1])),)
        assert companion.removed == [LEFT[0]]
        assert all(is_free), "other calls would wait for the companion"
        companion.over.set()
        platform.close(60)


def test_a_companion_that_stays_away_is_an_error(
    platform: LocalContainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_AWAY_S", 0.0)
    monkeypatch.setattr(containers, "_AGAIN_S", 0.001)
    with pytest.raises(FileNotFoundError):
        platform.adopt()


def test_an_instance_without_a_thread_has_not_started(
    platform: LocalContainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    platform.start(WorkerId(3), 0)
    assert platform.observe(0) == (InstanceNotStarted(WorkerId(3), "can't start new thread"),)
    assert not platform._containers
