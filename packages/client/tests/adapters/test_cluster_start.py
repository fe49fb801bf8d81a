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
from edl_proto.v1 import job_pb2

READY: dict[str, Any] = {
    "metadata": {"name": "m", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


class Objects:
    """A job whose master is ready, on a cluster that does not answer the first calls."""

    def __init__(self, unanswered: int, code: ErrorCode.ValueType) -> None:
        self.unanswered, self._code = unanswered, code

    def read(self, name: str) -> ClusterJob:
        if self.unanswered:
            self.unanswered -= 1
            raise EdlError(self._code, "the cluster does not answer")
        return ClusterJob(name, {"metadata": {}, "spec": {}}, {}, job_pb2.JobSpec())

    def pods(self, name: str, role: str) -> list[dict[str, Any]]:
        return [READY]


def wait(objects: Objects, timeout_s: float) -> None:
    session = ClusterSession(ClusterChoice())
    JobStart(session, cast(JobObjects, objects), "digits", timeout_s).wait()


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_POLL_S", 0.0)


def test_a_submission_outlives_calls_that_are_not_answered() -> None:
    objects = Objects(3, ErrorCode.CLUSTER_UNAVAILABLE)
    wait(objects, 600.0)
    assert objects.unanswered == 0


@pytest.mark.parametrize(
    ("code", "timeout_s"), [(ErrorCode.CLUSTER_UNAVAILABLE, -1.0), (ErrorCode.FORBIDDEN, 600.0)]
)
def test_a_submission_ends_when_its_time_is_over_or_it_is_refused(
    code: ErrorCode.ValueType, timeout_s: float
) -> None:
    with pytest.raises(EdlError) as caught:
        wait(Objects(3, code), timeout_s)
    assert caught.value.code == code
