"""Pods against an API server in memory: what they wait for, and what can never start.

The promises of every platform are tested with real pods: tests/kubernetes/test_pods.py.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi, outage

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError
from edl_kubernetes.master import api_retry, pod_logs
from edl_kubernetes.master.pod_record import may_pass
from edl_kubernetes.master.pod_status import Cause
from edl_kubernetes.master.pod_template import PodTemplate
from edl_kubernetes.master.pods import KubernetesPods
from edl_master.core.events import (
    InstanceExited,
    InstanceInspected,
    InstanceNotStarted,
    InstancePending,
)
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, Observation

PODS = "/api/v1/namespaces/team/pods"
OWNER = {"kind": "Lease", "name": "edl-job", "uid": "of the lease", "controller": True}
POD = {"spec": {"containers": [{"name": objects.CONTAINER, "env": []}]}}
TEMPLATE = PodTemplate("team", "job", "uid", OWNER, POD)
W = WorkerId(0)
NOTICE = "I0000 00:00:1795614662.841439      13 port.cc:153] oneDNN custom operations are on."
Start = Callable[[], KubernetesPods]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr(api_retry, "_FIRST_S", 0.0)
    return FakeApi()


@pytest.fixture
def start(api: FakeApi, tmp_path: Path) -> Iterator[Start]:
    made: list[KubernetesPods] = []

    def make() -> KubernetesPods:
        made.append(KubernetesPods(api, TEMPLATE, lambda worker: ["x"], tmp_path))
        return made[-1]

    yield make
    for each in made:
        each._over.set()  # no pod of this server ever ends
        each.close(-60)


def following(platform: KubernetesPods) -> Iterator[Observation]:
    while True:
        yield from platform.observe(1.0)


def only_pod(api: FakeApi) -> str:
    (path,) = (path for path in list(api.objects) if path.startswith(PODS))
    return path


def show(api: FakeApi, **status: Any) -> None:
    """The kubelet or the scheduler writes a status."""
    path = only_pod(api)
    api.put(path, {**copy.deepcopy(api.objects[path]), "status": status})


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": objects.CONTAINER, "state": state}]}


def wait_until_made(api: FakeApi, seen: Iterator[Observation]) -> None:
    assert next(seen) == InstancePending(W, "Creating")
    while not any(path.startswith(PODS) for path in list(api.objects)):
        pass  # the test's own limit ends this


def test_what_a_pod_waits_for_is_told_until_it_runs(api: FakeApi, start: Start) -> None:
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    for nodes in ("0/2", "0/3"):
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        show(api, conditions=[{**why, "message": f"{nodes} nodes are available"}])
        assert next(seen) == InstancePending(W, "Unschedulable", f"{nodes} nodes are available")
    show(api, **container(running={}))
    assert isinstance(next(seen), InstanceStarted)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (f"a\nno name resolves\n{NOTICE}\n", "the last line of its log: no name resolves"),
        ("", "its pod has written nothing to its log"),
        (ApiError(500, "", "dial tcp: no route"), "its log cannot be read: dial tcp: no route"),
    ],
)
def test_the_log_of_a_pod_is_read_on_request(
    api: FakeApi, start: Start, log: str | ApiError, words: str
) -> None:
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    platform.inspect(W)  # it does not run: there is nothing to be read
    show(api, **container(running={}))
    assert isinstance(next(seen), InstanceStarted)
    api.log = log
    platform.inspect(W)
    assert next(seen) == InstanceInspected(W, 0, words)


def test_a_pod_whose_first_container_fails_has_failed_with_what_that_one_says(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    logs = {objects.CONTAINER: "not run", "fetch": "no vocabulary"}
    monkeypatch.setattr(api, "text", lambda path, query: logs[query["container"]])
    failed = {"name": "fetch", "state": {"terminated": {"exitCode": 3}}}
    waiting = container(waiting={"reason": "PodInitializing"})
    show(api, phase="Failed", initContainerStatuses=[failed], **waiting)
    assert isinstance(next(seen), InstanceStarted)
    assert isinstance(end := next(seen), InstanceExited)
    assert (end.exit_code, end.preempted) == (3, False)
    assert end.cause == "a container failed that runs before it: fetch"
    assert end.log_tail.splitlines()[0] == "no vocabulary"


def run_pods(api: FakeApi, platform: KubernetesPods, seen: Iterator[Observation]) -> list[str]:
    """Ten pods that run, by the numbers of their workers."""
    for number in range(10):
        platform.start(WorkerId(number), 0)
    paths: dict[int, str] = {}
    while len(paths) < 10:
        for path, item in list(api.objects.items()):
            number = item["metadata"]["labels"][objects.LABEL_NUMBER]
            if paths.setdefault(int(number), path) == path:
                api.put(path, {**copy.deepcopy(item), "status": container(running={})})
    started: set[WorkerId] = set()
    while len(started) < 10:
        if isinstance(each := next(seen), InstanceStarted):
            started.add(each.worker)
    return [paths[number] for number in range(10)]


@pytest.mark.parametrize("number", [None, "first"])
def test_a_pod_without_its_number_is_deleted_and_stops_no_master(
    api: FakeApi, start: Start, number: str | None
) -> None:
    # A user who may write pods has changed a label, and the next master starts.
    paths = run_pods(api, first := start(), following(first))
    changed = copy.deepcopy(api.objects[paths[3]])
    changed["metadata"]["labels"].pop(objects.LABEL_NUMBER)
    if number is not None:
        changed["metadata"]["labels"][objects.LABEL_NUMBER] = number
    api.put(paths[3], changed)
    found = start().adopt()
    assert sorted(each.worker for each in found) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    while paths[3] in api.objects:
        pass  # the test's own limit ends this


def test_logs_that_hang_keep_no_end_waiting_and_are_read_once(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "_READS_PER_S", 1e6)
    platform = start()
    seen = following(platform)
    paths = run_pods(api, platform, seen)
    answered, asked = threading.Event(), list[str]()

    def text(path: str, query: Mapping[str, str]) -> str:
        if query["tailLines"] == "20":
            asked.append(path)
            answered.wait()
        return "busy"

    monkeypatch.setattr(api, "text", text)
    for _ in range(3):
        for number in range(10):
            platform.inspect(WorkerId(number))
    ended = container(terminated={"exitCode": 1})
    api.put(paths[9], {**copy.deepcopy(api.objects[paths[9]]), "status": ended})
    assert isinstance(end := next(seen), InstanceExited)
    assert end.worker == 9
    answered.set()
    assert {next(seen) for _ in range(9)} == {
        InstanceInspected(WorkerId(number), 0, "the last line of its log: busy")
        for number in range(9)
    }
    assert sorted(asked) == sorted(f"{path}/log" for path in paths[:9])


def test_a_thousand_silent_pods_are_asked_a_few_at_a_time(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "_READS_PER_S", 0.01)
    platform = start()
    run_pods(api, platform, following(platform))
    for number in range(10):
        platform.inspect(WorkerId(number))
    said: list[Observation] = []
    while seen := platform.observe(0.5):
        said += seen
    assert len(said) == pod_logs._READERS


def test_an_image_that_cannot_be_pulled_is_given_up_without_another_event(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_kubernetes.master.pod_record._START_TIMEOUT_S", 0.2)
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    show(api, **container(waiting={"reason": "ErrImagePull", "message": "not found"}))
    assert next(seen) == InstancePending(W, "ErrImagePull", "not found")
    assert next(seen) == InstanceNotStarted(W, "ErrImagePull: not found", permanent=True)


def test_a_volume_that_cannot_be_mounted_is_told_and_given_up_without_another_event(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_kubernetes.master.pod_record._UNPREPARED_TOLD_S", 0.2)
    monkeypatch.setattr("edl_kubernetes.master.pod_record._UNPREPARED_TIMEOUT_S", 0.6)
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    show(
        api,
        conditions=[{"type": "PodReadyToStartContainers", "status": "False"}],
        **container(waiting={"reason": "ContainerCreating"}),
    )
    assert platform.observe(0.1) == (), "every pod waits for its volumes for a moment"
    told = next(seen)
    assert isinstance(told, InstancePending)
    assert "kubectl describe pod edl-job-worker-0-0-" in told.detail
    given_up = next(seen)
    assert given_up == InstanceNotStarted(W, f"ContainerCreating: {told.detail}", permanent=True)


def test_a_pod_that_starts_in_time_is_not_given_up(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_kubernetes.master.pod_record._START_TIMEOUT_S", 0.2)
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    show(api, **container(waiting={"reason": "ErrImagePull", "message": "timeout"}))
    show(api, **container(running={}))
    assert next(seen) == InstancePending(W, "ErrImagePull", "timeout")
    assert isinstance(next(seen), InstanceStarted)
    assert platform.observe(0.5) == ()


def test_an_exceeded_quota_is_waited_for(api: FakeApi, start: Start) -> None:
    message = "exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5"

    def exceed_once(method: str, path: str) -> None:
        if method == "POST":
            api.before = lambda method, path: None
            raise ApiError(403, "Forbidden", message)

    api.before = exceed_once
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    assert next(seen) == InstancePending(W, "Creating")
    assert next(seen) == InstancePending(W, "QuotaExceeded", message)
    while not any(path.startswith(PODS) for path in list(api.objects)):
        pass


NO_RIGHT = 'pods is forbidden: User "master" cannot create resource "pods"'


@pytest.mark.parametrize("denial", [ApiError(401, "", "Unauthorized"), ApiError(403, "", NO_RIGHT)])
def test_a_first_denial_decides_nothing(api: FakeApi, start: Start, denial: ApiError) -> None:
    """An API server that starts refuses all calls, until it has read users and roles."""

    def deny_once(method: str, path: str) -> None:
        if method == "POST":
            api.before = lambda method, path: None
            raise denial

    api.before = deny_once
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    assert next(seen) == InstancePending(W, "Creating")
    assert next(seen) == InstancePending(W, "ApiUnavailable", denial.message)
    while not any(path.startswith(PODS) for path in list(api.objects)):
        pass


def test_denials_are_believed_in_the_end() -> None:
    for denial in (ApiError(401, "", "Unauthorized"), ApiError(403, "", NO_RIGHT)):
        assert [may_pass(denial, delay_s) for delay_s in (1.0, 8.0, 16.0)] == [True, True, False]
    assert not may_pass(ApiError(403, "", 'pods "x" is forbidden: violates PodSecurity'), 1.0)
    assert may_pass(ApiError(403, "", 'pods "x" is forbidden: exceeded quota: small'), 60.0)


@pytest.mark.parametrize(("status", "reason"), [(422, "Invalid"), (403, "Forbidden")])
def test_a_pod_that_the_api_server_refuses_can_never_start(
    api: FakeApi, start: Start, status: int, reason: str
) -> None:
    def refuse(method: str, path: str) -> None:
        if method == "POST":
            raise ApiError(status, reason, "no priority class missing was found")

    api.before = refuse
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    assert next(seen) == InstancePending(W, "Creating")
    refused = next(seen)
    assert isinstance(refused, InstanceNotStarted)
    assert refused.permanent
    assert "no priority class missing was found" in refused.reason


@pytest.mark.parametrize(
    ("condition", "terminated", "cause"),
    [
        (
            {"reason": "PreemptionByScheduler", "message": "Preempted by pod x"},
            {"exitCode": 143, "reason": "Error", "message": "the end of the log"},
            "a pod of higher priority took its place: Preempted by pod x",
        ),
        (None, {"exitCode": 137, "reason": "OOMKilled", "message": "log"}, Cause.OUT_OF_MEMORY),
        (None, {"exitCode": 3}, ""),
    ],
)
def test_the_end_of_a_pod_names_its_cause(
    api: FakeApi,
    start: Start,
    condition: dict[str, str] | None,
    terminated: dict[str, Any],
    cause: str,
) -> None:
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    condition = condition and {"type": "DisruptionTarget", "status": "True", **condition}
    show(api, **container(terminated=terminated), conditions=[condition] if condition else [])
    assert isinstance(next(seen), InstanceStarted)
    end = next(seen)
    assert isinstance(end, InstanceExited)
    assert (end.cause, end.preempted) == (cause, condition is not None)


def test_a_pod_that_is_deleted_and_does_not_end_is_lost_with_its_node(
    api: FakeApi, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_kubernetes.master.pods._LOST_MARGIN_S", 0.0)
    platform = start()
    platform.start(W, 0)
    seen = following(platform)
    wait_until_made(api, seen)
    show(api, **container(running={}))
    assert isinstance(next(seen), InstanceStarted)
    path = only_pod(api)
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    pod = copy.deepcopy(api.objects[path])
    api.put(path, {**pod, "metadata": {**pod["metadata"], **leaving}})
    end = next(seen)
    assert isinstance(end, InstanceExited)
    assert (end.cause, end.preempted) == (Cause.NODE_LOST, True)


def test_pods_of_a_former_master_are_found_when_the_api_server_is_back(
    api: FakeApi, start: Start
) -> None:
    running = TEMPLATE.render(InstanceId("edl-job-worker-3-0-ab"), WorkerId(3), 2, ["x"])
    api.put(f"{PODS}/edl-job-worker-3-0-ab", {**running, "status": container(running={})})
    platform = start()
    api.before = outage(10)
    (found,) = platform.adopt()
    assert (found.worker, found.attempt, found.instance) == (3, 2, "edl-job-worker-3-0-ab")
