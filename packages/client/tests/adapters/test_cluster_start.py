"""The wait for a job's master while the API server comes and goes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from edl.adapters.kubernetes import start
from edl.adapters.kubernetes.cluster_job import ClusterJob
from edl.adapters.kubernetes.job_objects import JobObjects
from edl.adapters.kubernetes.session import ClusterSession
from edl.adapters.kubernetes.start import JobStart
from edl.core.cluster.choice import ClusterChoice
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.kubernetes import objects as protocol
from edl_proto.v1 import job_pb2

READY: dict[str, Any] = {
    "metadata": {"name": "m", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


UNPULLED: dict[str, Any] = {
    "metadata": READY["metadata"],
    "status": {
        "containerStatuses": [
            {
                "name": protocol.CONTAINER,
                "state": {"waiting": {"reason": "ErrImagePull", "message": "connection refused"}},
            }
        ]
    },
}

UNPREPARED: dict[str, Any] = {
    "metadata": READY["metadata"],
    "status": {
        "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}],
        "containerStatuses": [
            {"name": protocol.CONTAINER, "state": {"waiting": {"reason": "ContainerCreating"}}}
        ],
    },
}

AWAY, DENIED = ErrorCode.CLUSTER_UNAVAILABLE, ErrorCode.FORBIDDEN


class Objects:
    """A job whose master is ready, on a cluster whose first calls fail."""

    def __init__(self, *codes: ErrorCode.ValueType) -> None:
        self.failures = list(codes)
        self.master = READY
        self.said: list[str] = []

    def read(self, name: str) -> ClusterJob:
        if self.failures:
            raise EdlError(self.failures.pop(0), "the cluster does not answer")
        return ClusterJob(name, {"metadata": {}, "spec": {}}, {}, job_pb2.JobSpec())

    def log(self, name: str, pod: str, query: dict[str, str]) -> str:
        return ""

    def warnings(self, name: str, pod: str = "") -> list[str]:
        return self.said if pod else []

    def location(self, name: str) -> str:
        return name

    def pods(self, name: str, role: str) -> list[dict[str, Any]]:
        return [self.master]


def wait(objects: Objects, timeout_s: float) -> None:
    session = ClusterSession(ClusterChoice())
    JobStart(session, cast(JobObjects, objects), "digits", timeout_s).wait()


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_POLL_S", 0.0)


def test_a_submission_outlives_calls_that_are_not_answered() -> None:
    # A server that starts denies everybody everything.
    objects = Objects(AWAY, AWAY, DENIED, DENIED)
    wait(objects, 600.0)
    assert objects.failures == []


@pytest.mark.parametrize(
    ("codes", "timeout_s"),
    [((AWAY,), -1.0), ((DENIED,), 600.0), ((AWAY, ErrorCode.JOB_NOT_FOUND), 600.0)],
)
def test_a_submission_ends_when_its_time_is_over_or_it_is_refused(
    codes: tuple[ErrorCode.ValueType, ...], timeout_s: float
) -> None:
    with pytest.raises(EdlError) as caught:
        wait(Objects(*codes), timeout_s)
    assert caught.value.code == codes[-1]


def test_a_denial_that_lasts_ends_a_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_DENIED_S", 0.0)
    with pytest.raises(EdlError) as caught:
        wait(Objects(AWAY, DENIED), 600.0)
    assert caught.value.code == DENIED


class Clock:
    """Each look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        pass


@pytest.mark.parametrize(
    ("timeout_s", "code", "waits_s"),
    [
        (20.0, ErrorCode.TIMED_OUT, 20),
        (600.0, ErrorCode.MASTER_LOST, 60),
        (3600.0, ErrorCode.MASTER_LOST, 360),
    ],
)
def test_a_longer_start_timeout_waits_longer_for_a_registry(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, code: ErrorCode.ValueType, waits_s: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(start, "time", clock)
    objects = Objects()
    objects.master = UNPULLED
    with pytest.raises(EdlError) as caught:
        wait(objects, timeout_s)
    assert caught.value.code == code
    assert waits_s <= clock.now < waits_s + 10
    assert ("--start-timeout" in caught.value.remedy) is (code == ErrorCode.MASTER_LOST)


@pytest.mark.parametrize(
    ("said", "code", "waits_s"),
    [
        # Nobody knows why; or a volume is being detached from another node, which takes minutes.
        ("", ErrorCode.TIMED_OUT, 600),
        ("Multi-Attach error for volume", ErrorCode.TIMED_OUT, 600),
        ('MountVolume.SetUp failed: secret "s" not found', ErrorCode.MASTER_LOST, 60),
    ],
)
def test_what_a_master_s_volumes_wait_for_is_quoted_and_what_does_not_exist_ends_it(
    monkeypatch: pytest.MonkeyPatch, said: str, code: ErrorCode.ValueType, waits_s: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(start, "time", clock)
    objects = Objects()
    objects.master, objects.said = UNPREPARED, [said] if said else []
    with pytest.raises(EdlError) as caught:
        wait(objects, 600.0)
    assert caught.value.code == code
    assert waits_s <= clock.now < waits_s + 10
    assert "its volumes or its network are not ready" in caught.value.what
    assert said in caught.value.what
    assert "kubectl describe pod m" in caught.value.remedy
