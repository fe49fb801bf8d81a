"""Pods that nothing waits for are deleted, whatever the API server says at first."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi, Fault

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable
from edl_kubernetes.master import pod_removal
from edl_kubernetes.master.pod_template import PodTemplate
from edl_kubernetes.master.pods import KubernetesPods
from edl_master.core.events import InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId

PODS = "/api/v1/namespaces/team/pods"
OWNER = {"kind": "Lease", "name": "edl-job", "uid": "of the lease", "controller": True}
POD = {"spec": {"containers": [{"name": objects.CONTAINER, "env": []}]}}
TEMPLATE = PodTemplate("team", "job", "uid", OWNER, POD)
NAME = "edl-job-worker-3-0-ab"
LONG_S = 60.0
ERRORS = [ApiUnavailable("connection reset"), ApiError(500, "", "etcd has no leader")]


class Deletions(FakeApi):
    """An API server that also keeps the grace periods of pods that were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.graces: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()

    def delete(self, path: str, grace_s: int | None = None) -> None:
        super().delete(path, grace_s)
        self.graces.put((path, grace_s))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Deletions:
    monkeypatch.setattr(pod_removal, "_PAUSES_S", (0.001,) * 4)
    return Deletions()


@pytest.fixture
def platform(api: Deletions, tmp_path: Path) -> Iterator[KubernetesPods]:
    made = KubernetesPods(api, TEMPLATE, lambda worker: ["x"], tmp_path)
    yield made
    made._over.set()  # no pod of this server ever ends
    made.close(-60)


def refuse_deletions(error: Exception, times: int) -> Fault:
    failures = iter([error] * times)

    def fail(method: str, path: str) -> None:
        if method == "DELETE" and (failure := next(failures, None)) is not None:
            raise failure

    return fail


def left_by_a_former_master(api: FakeApi, **state: Any) -> None:
    pod = TEMPLATE.render(InstanceId(NAME), WorkerId(3), 0, ["x"])
    status = {"containerStatuses": [{"name": objects.CONTAINER, "state": state}]}
    api.put(f"{PODS}/{NAME}", {**pod, "status": status})


@pytest.mark.parametrize("error", ERRORS)
def test_a_pod_that_a_new_master_does_not_keep_is_removed_with_its_own_grace(
    api: Deletions, platform: KubernetesPods, error: Exception
) -> None:
    left_by_a_former_master(api, waiting={"reason": "ContainerCreating"})
    api.before = refuse_deletions(error, 3)
    assert platform.adopt() == ()
    assert api.graces.get(timeout=LONG_S) == (f"{PODS}/{NAME}", None)


@pytest.mark.parametrize("error", ERRORS)
def test_a_pod_that_was_given_up_is_removed_in_the_end(
    api: Deletions, platform: KubernetesPods, error: Exception
) -> None:
    platform.start(WorkerId(0), 0)
    while not (made := [path for path in list(api.objects) if path.startswith(PODS)]):
        platform.observe(0.01)  # the test's own limit ends this
    waiting = {"reason": "InvalidImageName", "message": "no image"}
    status = {"containerStatuses": [{"name": objects.CONTAINER, "state": {"waiting": waiting}}]}
    api.before = refuse_deletions(error, 3)
    api.put(made[0], {**api.objects[made[0]], "status": status})
    seen = platform.observe(LONG_S)
    while not any(isinstance(each, InstanceNotStarted) for each in seen):
        seen = platform.observe(LONG_S)
    assert api.graces.get(timeout=LONG_S) == (made[0], 1)


def test_a_pod_that_cannot_be_removed_is_told(
    api: Deletions, platform: KubernetesPods, caplog: pytest.LogCaptureFixture
) -> None:
    left_by_a_former_master(api, terminated={"exitCode": 0})
    api.before = refuse_deletions(ApiError(403, "Forbidden", "no right"), 4)
    platform.adopt()
    platform._ends.shutdown()
    told = [each.getMessage() for each in caplog.records if "was not removed" in each.getMessage()]
    assert len(told) == 4
    assert NAME in told[0]
    assert "no right" in told[0]
