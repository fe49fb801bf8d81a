"""The wait for a job's master while the API server comes and goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest

from edl.core.options.kubernetes import ClusterChoice
from edl.ports.job_backend import Say, silent
from edl_kubernetes import start, start_progress
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects as protocol
from edl_kubernetes.cluster_job import ClusterJob
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.start import JobStart
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2

READY: dict[str, Any] = {
    "metadata": {"name": "m", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
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
    "spec": {"nodeName": "n1"},
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
        self.masters: Iterator[dict[str, Any] | None] = itertools.repeat(None)
        """What is seen of the master, look by look; None: what was seen before."""
        self.said: list[str] = []
        self.of_job: list[str] = []
        self.logged = ""
        self.unlogged: EdlError | None = None
        """Why no log can be read."""

    def read(self, name: str) -> ClusterJob:
        if self.failures:
            raise EdlError(self.failures.pop(0), "the cluster does not answer")
        return ClusterJob(name, {"metadata": {}, "spec": {}}, {}, job_pb2.JobSpec())

    def log(self, name: str, pod: str, query: dict[str, str]) -> str:
        if self.unlogged is not None:
            raise self.unlogged
        return self.logged

    def events(self, name: str, kind: str, whom: str = "", *, warnings: bool = False) -> list[str]:
        return self.said if whom else self.of_job

    def is_bound(self, name: str, claim: str) -> bool:
        return claim != "unbound"

    def locate(self, name: str) -> tuple[str, str]:
        return "team", name

    def location(self, name: str) -> str:
        return name

    def pods(self, name: str, role: str) -> list[dict[str, Any]]:
        self.master = next(self.masters, None) or self.master
        return [self.master] if self.master else []


def wait(objects: Objects, timeout_s: float, say: Say = silent) -> None:
    cluster = ChosenCluster(ClusterChoice())
    JobStart(cluster, cast(JobObjects, objects), "digits", timeout_s, say).wait()


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_POLL_S", 0.0)


def test_a_submission_outlives_calls_that_are_not_answered() -> None:
    # A server that starts denies all calls.
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
        # The reason is unknown, or a volume is being detached elsewhere, which takes minutes.
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


def pod(
    *conditions: tuple[str, str, str, str], node: str = "n1", claim: str = "", **state: Any
) -> dict[str, Any]:
    """A master's pod: conditions with status, reason and message, and its container's state."""
    named = [{"type": a, "status": b, "reason": c, "message": d} for a, b, c, d in conditions]
    volumes = [{"persistentVolumeClaim": {"claimName": claim}}, {"emptyDir": {}}]
    return {
        "metadata": READY["metadata"],
        "spec": {"nodeName": node, "volumes": volumes},
        "status": {
            "conditions": named,
            "containerStatuses": [{"name": protocol.CONTAINER, "state": state}],
        },
    }


NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."
UNSCHEDULABLE = pod(("PodScheduled", "False", "Unschedulable", NO_ROOM), node="")
PULLING = pod(
    ("PodReadyToStartContainers", "True", "", ""), waiting={"reason": "ContainerCreating"}
)


def test_a_start_says_at_once_what_is_wrong_and_whenever_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    objects, said = Objects(AWAY), list[str]()
    first, second, third = (
        pod(waiting={"reason": reason, "message": words})
        for reason, words in (
            ("ErrImagePull", "refused"),
            ("ImagePullBackOff", "Back-off pulling image: ErrImagePull: refused"),
            ("ErrImagePull", "the other registry is slow"),
        )
    )
    looks = [UNSCHEDULABLE] * 90 + [first, second, first, second, third] + [READY]
    objects.masters = iter(looks)
    wait(objects, 600.0, said.append)
    # What a node says between two attempts ends with what it has said of the last one.
    problems = (
        "the cluster does not answer",
        f"no node can take it: {NO_ROOM}",
        "ErrImagePull: refused",
        "ErrImagePull: the other registry is slow",
    )
    shown = [line.removeprefix("digits waits for its master: ") for line in said]
    assert list(dict.fromkeys(shown)) == list(problems)
    repeated = shown.count(f"no node can take it: {NO_ROOM}")
    assert 2 <= repeated <= 4, "once a minute while it lasts, not at each look"
    assert len(shown) == len(problems) + repeated - 1


def test_a_start_that_waits_for_a_volume_says_what_the_claim_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    message = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    objects, said = Objects(), list[str]()
    objects.said = ["no persistent volumes available for this claim and no storage class is set"]
    unscheduled = ("PodScheduled", "False", "Unschedulable", message)
    objects.masters = iter([pod(unscheduled, node="", claim="unbound")] * 99)
    with pytest.raises(EdlError) as late:
        wait(objects, 30.0, said.append)
    for words in (said[0], late.value.what):
        assert "its volume is not available; the volume of the claim unbound is not there" in words
        assert words.endswith("no storage class is set")
    assert "--state-volume" in late.value.remedy


@pytest.mark.parametrize(
    ("seen", "events", "words"),
    [
        (UNPREPARED, ["Multi-Attach error"], "Multi-Attach error"),
        (PULLING, ["Pulling image zoo"], "gets the image and makes the container: Pulling image"),
        (pod(running={}), [], "does not answer yet; the last line of its log: indexes 7 files"),
        (pod(node="", claim="unbound"), ["provisioning"], "claim unbound is not there yet: provis"),
        (pod(node="", claim="bound"), [], "no node has been chosen for its pod yet"),
        (
            pod(waiting={"reason": "PodInitializing"}),
            [],
            "the init containers of its pod are running",
        ),
        (pod(("DisruptionTarget", "True", "", "")), [], "was taken away, and another one follows"),
    ],
)
def test_a_start_that_takes_longer_than_usual_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any], events: list[str], words: str
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    objects, said = Objects(), list[str]()
    objects.said, objects.logged = events, "indexes 7 files\n"
    monkeypatch.setattr(start_progress, "_BRIEF_S", 12.0)
    objects.masters = iter([seen] * 3 + [READY])
    wait(objects, 600.0, said.append)
    assert said == [], "every start looks so for a moment"
    objects.masters = iter([seen] * 30 + [READY])
    wait(objects, 600.0, said.append)
    (line,) = said
    assert words in line


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("Job resumed", "Kubernetes has not made its pod yet: Job resumed"),
        ("Created pod: edl-digits-x8lfd", "its pod was taken away, and another one follows"),
    ],
)
def test_a_start_without_a_pod_quotes_what_kubernetes_says_of_the_job(
    monkeypatch: pytest.MonkeyPatch, event: str, words: str
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    objects, said = Objects(), list[str]()
    objects.master, objects.of_job = {}, [event]
    objects.masters = iter([None] * 8 + [READY])
    wait(objects, 600.0, said.append)
    assert said == [f"digits waits for its master: {words}"]


def test_a_quota_that_keeps_the_master_from_its_pod_names_what_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    objects = Objects()
    words = "exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4"
    objects.master, objects.of_job = {}, [f'pods "edl-digits" is forbidden: {words}']
    with pytest.raises(EdlError) as caught:
        wait(objects, 600.0)
    assert caught.value.code == ErrorCode.LIMIT_EXCEEDED
    assert "fewer pods with --num-workers" in caught.value.remedy


def test_a_log_that_may_not_be_read_ends_no_start_and_hides_no_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An API server that starts denies all calls, and may do so between two calls.
    monkeypatch.setattr(start, "time", Clock())
    objects, said = Objects(), list[str]()
    objects.unlogged = EdlError(DENIED, "you may not get pods/log")
    objects.masters = iter([pod(running={})] * 30 + [READY])
    wait(objects, 600.0, said.append)
    (line,) = said
    assert line.endswith(
        "it runs, and does not answer yet; its log cannot be read: you may not get pods/log"
    )
    objects.master = pod(terminated={"exitCode": 1, "message": "RuntimeError: lost"})
    with pytest.raises(EdlError) as caught:
        wait(objects, 600.0)
    assert caught.value.code == ErrorCode.MASTER_LOST
    assert "RuntimeError: lost" in caught.value.what
    assert "you may not get pods/log" in caught.value.detail


def test_a_reason_that_changes_all_the_time_does_not_flood_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "time", clock := Clock())
    objects, said = Objects(), list[str]()
    objects.masters = iter(
        [
            pod(("PodScheduled", "False", "Unschedulable", f"0/{n} nodes"), node="")
            for n in range(200)
        ]
        + [READY]
    )
    wait(objects, 6000.0, said.append)
    assert len(said) <= 10 * (clock.now // 60 + 1)
    assert len(said) >= 10


def test_a_long_answer_of_a_registry_is_clipped_to_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "time", Clock())
    objects, said = Objects(), list[str]()
    page = "refused\nerror: all is lost\x1b[2J" + "x" * 10_000_000
    objects.masters = iter([pod(waiting={"reason": "ErrImagePull", "message": page}), READY])
    wait(objects, 600.0, said.append)
    (line,) = said
    assert "refused\\nerror: all is lost\\x1b[2J" in line
    assert len(line) < 1200


def test_polls_become_less_frequent_during_a_long_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_POLL_S", 0.3)
    clock, pauses = Clock(), list[float]()
    monkeypatch.setattr(clock, "sleep", pauses.append)
    monkeypatch.setattr(start, "time", clock)
    objects = Objects()
    objects.masters = iter([UNSCHEDULABLE] * 30 + [READY])
    wait(objects, 600.0)
    assert pauses[0] == 0.3
    assert pauses[-1] == 2.0


def test_a_refusal_that_has_passed_ends_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pod that was made at last was deleted, and the next one takes a moment.
    monkeypatch.setattr(start, "time", Clock())
    objects = Objects()
    refused = 'Error creating: pods "edl-digits" is forbidden: exceeded quota: q'
    objects.master, objects.of_job = {}, [refused, "Created pod: edl-digits-x8lfd"]
    objects.masters = iter([None] * 8 + [READY])
    wait(objects, 600.0)
