"""Which master answers, why none starts, and the logs of pods that come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from edl.core.job_log import LogChoice
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.master_pods import describe_lack_of_node, find_problem, ready_pod
from edl_kubernetes.pod_logs import PodLogs
from edl_kubernetes.refusals import refusal
from edl_proto.errors import ErrorCode
from edl_runtime.timestamps import parse_rfc3339


def pod(name: str, created: int = 0, *, ready: bool = False, **state: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "edl", "state": state}]
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-11-22T20:00:{created:02}Z"},
        "status": {"conditions": conditions, "containerStatuses": statuses},
    }


def test_the_newest_pod_that_is_ready_is_the_master() -> None:
    old, new, later = pod("old", 1, ready=True), pod("new", 2, ready=True), pod("later", 3)
    assert ready_pod([old, new, later]) is new
    new["metadata"]["deletionTimestamp"] = "2026-11-22T20:01:00Z"
    assert ready_pod([old, new, later]) is old
    assert ready_pod([later]) is None


@pytest.mark.parametrize(
    ("reason", "said", "is_final"),
    [
        ("InvalidImageName", "couldn't parse", True),
        ("ErrImagePull", 'rpc error: "zoo": not found', True),
        ("ErrImagePull", "no match for platform in manifest", True),
        ("ImagePullBackOff", "i/o timeout", False),
        ("CreateContainerConfigError", 'secret "s3" not found', True),
    ],
)
def test_an_image_or_a_configuration_that_cannot_be_had(
    reason: str, said: str, is_final: bool
) -> None:
    problem = find_problem([pod("one", waiting={"reason": reason, "message": said})])
    assert problem is not None
    assert problem.what == f"{reason}: {said}"
    assert problem.is_final is is_final
    assert problem.remedy


def test_a_pod_that_is_being_made_has_no_problem() -> None:
    assert find_problem([]) is None
    assert find_problem([pod("one", waiting={"reason": "ContainerCreating"})]) is None
    assert find_problem([pod("one", running={})]) is None
    for pods in ([], [{**pod("one"), "spec": {"nodeName": "node1"}}]):
        assert not describe_lack_of_node(pods)


def test_the_scheduler_is_quoted_and_the_pod_may_wait() -> None:
    waiting = pod("one")
    waiting["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient memory.",
            }
        ]
    }
    problem = find_problem([waiting])
    assert problem is not None
    assert describe_lack_of_node([waiting]) == problem.what
    assert "3 Insufficient memory" in problem.what
    assert problem.lacks_room
    assert not problem.is_final
    assert "--master-resources" in problem.remedy
    (condition,) = waiting["status"]["conditions"]
    condition["message"] = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: }, 2 node(s) didn't match"
        " Pod's node affinity/selector."
    )
    problem = find_problem([waiting])
    assert problem is not None
    assert "--node-selector" in problem.remedy
    assert "--tolerations" in problem.remedy
    assert "--master-resources" not in problem.remedy
    condition["message"] = "0/1 nodes are available: it has unbound PersistentVolumeClaims."
    problem = find_problem([waiting])
    assert problem is not None
    assert problem.what.startswith("its volume is not available: 0/1 nodes")
    assert "--state-volume" in problem.remedy


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("exec python3: exec format error", "exit code 1: exec python3: exec format error"),
        ("python3: No module named edl_master", "1: python3: No module named edl_master"),
        ("Traceback\nRuntimeError: lost", "it ended with exit code 1: RuntimeError: lost"),
        ("E no rights\n  what to do: Ask.", "it ended with exit code 1: E no rights"),
        (r'ack\nRuntimeError: lost"}', "it ended with exit code 1: RuntimeError: lost"),
    ],
)
def test_a_master_that_ends_at_once_says_why(said: str, what: str) -> None:
    ended = pod("one", terminated={"exitCode": 1, "message": said, "reason": "Error"})
    problem = find_problem([ended])
    assert problem is not None
    assert what in problem.what
    assert problem.is_final
    assert "edl zoo build" in problem.remedy
    ended["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    assert find_problem([ended]) is None, "the next pod is already on its way"


def test_a_master_that_failed_says_why_although_another_one_has_followed() -> None:
    failed = pod("one", terminated={"exitCode": 1, "message": "lost", "reason": "Error"})
    next_one = pod("two", 1, waiting={"reason": "ContainerCreating"})
    problem = find_problem([next_one, failed])
    assert problem is not None
    assert (problem.pod, problem.is_final) == ("one", True)
    failed["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    assert find_problem([next_one, failed]) is None, "a disruption is no reason to give up"


def test_a_container_that_fails_before_the_master_is_named() -> None:
    waits = pod("one", waiting={"reason": "PodInitializing"})
    fetch: dict[str, Any] = {"name": "fetch", "state": {"running": {}}}
    waits["status"]["initContainerStatuses"] = [fetch]
    # The sandbox of a pod that has failed is taken down, as before its volumes are ready.
    unprepared = {"type": "PodReadyToStartContainers", "status": "False"}
    waits["status"]["conditions"].append(unprepared)
    fetch["state"] = {"terminated": {"exitCode": 3, "message": "E\nno vocabulary\n"}}
    problem = find_problem([waits])
    assert problem is not None
    assert problem.what == ("the init container fetch ended with exit code 3: no vocabulary")
    assert (problem.is_final, problem.container) == (True, "fetch")
    fetch["state"] = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    problem = find_problem([waits])
    assert problem is not None
    assert problem.what == "ErrImagePull: not found"
    fetch["state"] = {"terminated": {"exitCode": 0}}
    waits["status"]["conditions"].pop()
    assert find_problem([waits]) is None
    fetch["state"] = {"terminated": {"exitCode": 137}}
    waits["metadata"]["deletionTimestamp"] = "2026-11-22T20:01:00Z"
    assert find_problem([waits]) is None, "it was deleted, and another one follows"


def test_a_container_that_cannot_be_started_is_not_one_that_has_run() -> None:
    said = 'exec: "python3": executable file not found in $PATH'
    ended = pod("one", terminated={"exitCode": 128, "message": said, "reason": "StartError"})
    problem = find_problem([ended])
    assert problem is not None
    assert problem.what == f"its container cannot be started: {said}"
    assert problem.is_final
    assert not problem.has_run
    assert "edl zoo build" in problem.remedy


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (401, "Unauthorized", ErrorCode.FORBIDDEN),
        (403, 'pods is forbidden: User "eve" cannot create', ErrorCode.FORBIDDEN),
        (403, 'pods "x" is forbidden: exceeded quota: small', ErrorCode.LIMIT_EXCEEDED),
        (403, 'pods "x" is forbidden: violates PodSecurity', ErrorCode.FORBIDDEN),
        (
            403,
            'pods "x" is forbidden: maximum memory usage per Container is 700Mi, but limit is 1Gi',
            ErrorCode.LIMIT_EXCEEDED,
        ),
        (403, "forbidden: no PriorityClass with name high was found", ErrorCode.USAGE),
        (404, 'namespaces "ns" not found', ErrorCode.USAGE),
        (422, 'Job.batch "x" is invalid', ErrorCode.USAGE),
    ],
)
def test_every_refusal_has_its_code_and_a_remedy(status: int, said: str, code: int) -> None:
    error = refusal(ApiError(status, "", said), "the Job", "cluster", "ns")
    assert error.code == code
    assert error.where == "cluster/ns"
    assert error.remedy
    assert said in error.what or status == 401


SHORT = "exceeded quota: q, requested: {}, used: much, limited: more"


@pytest.mark.parametrize(
    ("said", "advised"),
    [
        (SHORT.format("secrets=1"), "no more secrets"),
        (SHORT.format("count/jobs.batch=1"), "no more jobs"),
        (SHORT.format("services=1,secrets=1"), "no more services and secrets"),
        (SHORT.format("services.nodeports=1"), "no more services"),
        (SHORT.format("configmaps=1"), "no more configmaps"),
        (SHORT.format("pods=1"), "--num-workers"),
        (SHORT.format("requests.storage=9Gi"), "--state-volume"),
        (SHORT.format("fast.storageclass.storage.k8s.io/requests.storage=1Gi"), "--state-volume"),
        (SHORT.format("persistentvolumeclaims=1"), "--state-volume"),
        (SHORT.format("requests.cpu=2"), "--master-resources"),
        (SHORT.format("memory=2Gi,pods=1"), "--master-resources"),
        (SHORT.format("requests.nvidia.com/gpu=1"), "--master-resources"),
        (SHORT.format("limits.ephemeral-storage=1Gi"), "--master-resources"),
        ("failed quota: q: must specify limits.cpu for: edl", "such as limits.cpu=2"),
        ("exceeded quota: small", "--master-resources"),
    ],
)
def test_the_remedy_against_a_quota_names_what_is_short(said: str, advised: str) -> None:
    error = refusal(ApiError(403, "", f'"x" is forbidden: {said}'), "the Job", "cluster", "ns")
    assert error.code == ErrorCode.LIMIT_EXCEEDED
    assert advised in error.remedy
    assert error.remedy.endswith("kubectl --namespace ns describe quota shows what is left.")
    is_of_pods = advised == "--master-resources"
    assert ("Ask for less with --master-resources" in error.remedy) is is_of_pods


def test_a_cluster_that_does_not_answer_is_not_a_refusal() -> None:
    error = refusal(ApiUnavailable("refused"), "listing jobs", "cluster", "ns")
    assert error.code == ErrorCode.CLUSTER_UNAVAILABLE
    assert error.detail == "refused"


def test_a_certificate_that_is_not_trusted_and_missing_credentials_are_named() -> None:
    untrusted = ApiUnavailable("SSLError [SSL: CERTIFICATE_VERIFY_FAILED] unable to get issuer")
    error = refusal(untrusted, "listing jobs", "cluster", "ns")
    assert error.code == ErrorCode.CLUSTER_UNAVAILABLE
    assert "certificate" in error.what
    assert "kubeconfig" in error.remedy
    anonymous = ApiError(403, "", 'jobs is forbidden: User "system:anonymous" cannot list')
    error = refusal(anonymous, "listing jobs", "cluster", "ns")
    assert error.what == "the cluster got no credentials from your kubeconfig"
    assert "log in" in error.remedy
    everywhere = ApiError(403, "", 'User "eve" cannot list resource "jobs" at the cluster scope')
    assert "--namespace" in refusal(everywhere, "listing jobs", "cluster", "ns").remedy


def utc(number: int) -> str:
    """When the nth line of a log was written."""
    return f"2026-11-22T20:00:{number:02}.000000000Z"


class Cluster:
    """Pods with logs, and a record.

    Args:
        stamp: when the nth line of a log was written, as the node says.
    """

    def __init__(self, stamp: Callable[[int], str] = utc) -> None:
        self.stamp = stamp
        self.pods: dict[str, tuple[dict[str, str], list[str]]] = {}
        self.record: dict[str, Sequence[str]] = {}

    def add(self, name: str, role: str, number: int = 0) -> list[str]:
        labels = {objects.LABEL_ROLE: role, objects.LABEL_NUMBER: str(number)}
        lines: list[str] = []
        self.pods[name] = (labels, lines)
        return lines

    def list(self) -> list[dict[str, Any]]:
        return [
            {"metadata": {"name": name, "labels": labels, "creationTimestamp": name}}
            for name, (labels, _) in self.pods.items()
        ]

    def read(self, name: str, query: Mapping[str, str]) -> str:
        lines = enumerate(self.pods[name][1])
        stamped = [f"{self.stamp(number)} {text}" for number, text in lines]
        since = parse_rfc3339(query.get("sinceTime", "1970-01-01T00:00:00Z"))
        assert since is not None
        kept = [line for line in stamped if (parse_rfc3339(line.partition(" ")[0]) or 0.0) >= since]
        if "tailLines" in query:
            kept = kept[-int(query["tailLines"]) :]
        return "".join(f"{line}\n" for line in kept)

    def logs(self, **chosen: Any) -> PodLogs:
        return PodLogs(self.list, self.read, lambda: self.record, LogChoice(**chosen))


def texts(logs: PodLogs, final: bool = False) -> list[str]:
    return [f"{line.source}: {line.text}" for line in logs.poll(final)]


def test_each_line_of_a_living_pod_is_given_once() -> None:
    cluster = Cluster()
    master, worker = cluster.add("m", objects.MASTER), cluster.add("w", objects.WORKER, 1)
    master.append("one")
    logs = cluster.logs()
    assert texts(logs) == ["master: one"]
    master.append("two")
    worker.append("here")
    assert texts(logs) == ["worker 1: here", "master: two"], "by their times"
    assert texts(logs, final=True) == []


@pytest.mark.parametrize(
    "stamps",
    [
        ["2026-11-22T22:00:00.5+02:00", "2026-11-22T22:00:01.5+02:00"],
        ["2026-11-22T14:30:00.5-05:30", "2026-11-22T14:30:01.5-05:30"],
        # The clock goes back by an hour.
        ["2026-10-25T02:59:59.5+02:00", "2026-10-25T02:00:00.5+01:00"],
        # Go leaves out zeros at the end of a fraction, and a float ends at microseconds.
        [f"2026-11-22T20:00:00{part}Z" for part in ("", ".1", ".12", ".120000004")],
    ],
)
def test_the_time_of_a_line_counts_and_not_how_the_node_writes_it(stamps: list[str]) -> None:
    cluster = Cluster(stamps.__getitem__)
    worker = cluster.add("w", objects.WORKER)
    logs = cluster.logs()
    for stamp in stamps:
        worker.append(stamp)
        assert texts(logs) == [f"worker 0: {stamp}"]
        assert texts(logs) == []


def test_lines_of_one_nanosecond_are_all_given() -> None:
    cluster = Cluster(lambda number: utc(number // 2))
    cluster.add("w", objects.WORKER).extend(["one", "two", "three"])
    logs = cluster.logs()
    assert texts(logs) == ["worker 0: one", "worker 0: two", "worker 0: three"]
    assert texts(logs) == []


def test_what_a_pod_that_is_gone_wrote_last_comes_from_the_record() -> None:
    cluster = Cluster()
    cluster.add("w", objects.WORKER, 0).append("one")
    logs = cluster.logs()
    assert texts(logs) == ["worker 0: one"]
    cluster.pods.clear()
    cluster.record["worker-0"] = ["one", "last words"]
    assert texts(logs) == ["worker 0: last words"]
    assert texts(logs, final=True) == []


def test_after_the_end_the_record_is_all_there_is() -> None:
    cluster = Cluster()
    cluster.record = {"worker-10": ["b"], "worker-2": ["x", "a"], "master": ["m"]}
    assert texts(cluster.logs(tail=1), final=True) == ["master: m", "worker 2: a", "worker 10: b"]
    assert texts(cluster.logs(worker=10), final=True) == ["worker 10: b"]
    assert texts(cluster.logs(role="master"), final=True) == ["master: m"]
    assert cluster.logs().workers() == [2, 10]


def test_tail_counts_for_what_is_there_and_not_for_what_comes() -> None:
    cluster = Cluster()
    cluster.add("w", objects.WORKER).extend(["one", "two", "three"])
    logs = cluster.logs(tail=1)
    assert texts(logs) == ["worker 0: three"]
    cluster.add("x", objects.WORKER, 1).extend(["a", "b"])
    assert texts(logs) == ["worker 1: a", "worker 1: b"]
