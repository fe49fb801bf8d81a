"""The statuses of pods as Kubernetes writes them, and what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from edl_kubernetes.master.pod_status import (
    Cause,
    PodEnd,
    StartProblem,
    is_running,
    pod_end,
    start_problem,
    vanished_pod_end,
)

MAIN = "edl"


def pod(
    state: dict[str, Any] | None = None,
    phase: str = "Running",
    condition: tuple[str, str, str] | None = None,
    reason: str = "",
    **metadata: Any,
) -> dict[str, Any]:
    """A pod whose container is in a state; the condition is its type, status and reason."""
    status: dict[str, Any] = {"phase": phase}
    if state is not None:
        status["containerStatuses"] = [{"name": MAIN, "state": state}]
    if condition is not None:
        keys = ("type", "status", "reason")
        status["conditions"] = [dict(zip(keys, condition, strict=True))]
    if reason:
        status["reason"] = reason
    return {"metadata": metadata, "status": status}


def termination(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def init_failed(**of_pod: Any) -> dict[str, Any]:
    """A pod whose second first container has failed."""
    made = pod({"waiting": {"reason": "PodInitializing"}}, "Failed", **of_pod)
    first = [{"name": "first", "state": termination(0, "Completed")}]
    made["status"]["initContainerStatuses"] = [*first, {"name": "fetch", "state": termination(3)}]
    return made


def disruption(reason: str) -> tuple[str, str, str]:
    return ("DisruptionTarget", "True", reason)


@pytest.mark.parametrize(
    ("seen", "end"),
    [
        (pod(termination(0, "Completed"), "Succeeded"), PodEnd(Cause.FINISHED, 0, None)),
        (pod(termination(3), "Failed"), PodEnd(Cause.FAILED, 3, None)),
        (pod(termination(139), "Failed"), PodEnd(Cause.FAILED, None, 11)),
        (init_failed(), PodEnd(Cause.INIT_FAILED, 3, None, "fetch", "fetch")),
        (init_failed(deletionTimestamp="now"), PodEnd(Cause.REJECTED, None, 9)),
        (
            init_failed(condition=disruption("EvictionByEvictionAPI")),
            PodEnd(Cause.EVICTED, None, 9),
        ),
        (pod(termination(137, "OOMKilled"), "Failed"), PodEnd(Cause.OUT_OF_MEMORY, None, 9)),
        (
            pod(termination(137), "Failed", disruption("PreemptionByScheduler")),
            PodEnd(Cause.PREEMPTED, None, 9),
        ),
        (
            pod(termination(143), "Failed", disruption("EvictionByEvictionAPI")),
            PodEnd(Cause.EVICTED, None, 15),
        ),
        (
            pod(termination(0, "Completed"), "Failed", disruption("DeletionByTaintManager")),
            PodEnd(Cause.TAINTED, 0, None),
        ),
        (
            pod(termination(137), "Failed", disruption("TerminationByKubelet"), "Evicted"),
            PodEnd(Cause.KUBELET_EVICTED, None, 9),
        ),
        (
            pod({"running": {}}, "Failed", disruption("DeletionByPodGC")),
            PodEnd(Cause.NODE_GONE, None, 9),
        ),
        (
            pod(termination(0, "Completed"), "Succeeded", ("TerminationTarget", "True", "Any")),
            PodEnd(Cause.QUEUE_EVICTED, 0, None),
        ),
        # Without the condition, the pod itself exceeded a limit: its user's fault.
        (
            pod(termination(137), "Failed", reason="Evicted"),
            PodEnd(Cause.STORAGE_LIMIT, None, 9),
        ),
        (pod(None, "Failed", reason="OutOfmemory"), PodEnd(Cause.REJECTED, None, 9)),
        (pod(None, "Failed", reason="DeadlineExceeded"), PodEnd(Cause.DEADLINE, None, 9)),
        (
            pod(termination(137, "ContainerStatusUnknown"), "Failed"),
            PodEnd(Cause.LOST, None, 9),
        ),
        (
            pod(termination(143), "Failed", deletionTimestamp="2026-01-01T00:00:00Z"),
            PodEnd(Cause.DELETED, None, 15),
        ),
        # A sidecar keeps the pod's phase at Running after the container has ended.
        (pod(termination(1), "Running"), PodEnd(Cause.FAILED, 1, None)),
    ],
    ids=lambda it: it.cause.name.lower() if isinstance(it, PodEnd) else "",
)
def test_an_end_has_a_cause_and_an_exit_code_or_signal(seen: Any, end: PodEnd) -> None:
    assert pod_end(seen, MAIN) == end


def test_only_causes_outside_the_job_are_disruptions() -> None:
    own = {Cause.FINISHED, Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.STORAGE_LIMIT, Cause.DEADLINE}
    own.add(Cause.INIT_FAILED)
    for cause in Cause:
        assert PodEnd(cause, None, 9).is_disruption == (cause not in own), cause
    assert vanished_pod_end().is_disruption


@pytest.mark.parametrize(
    "seen",
    [
        pod(None, "Pending"),
        pod({"waiting": {"reason": "ContainerCreating"}}, "Pending"),
        pod({"running": {}}),
        pod({"running": {}}, deletionTimestamp="2026-01-01T00:00:00Z"),
        # The node is lost: nothing is known, and the object stays.
        pod({"running": {}}, condition=("Ready", "False", "NodeLost")),
    ],
)
def test_a_pod_that_may_still_run_has_no_end(seen: Any) -> None:
    assert pod_end(seen, MAIN) is None


def test_a_pod_runs_from_the_start_of_its_own_container() -> None:
    assert not is_running(pod(None, "Pending"), MAIN)
    assert not is_running(pod({"waiting": {"reason": "PodInitializing"}}), MAIN)
    assert is_running(pod({"running": {}}), MAIN)
    assert not is_running(pod({"running": {}}), "another")


def test_what_keeps_a_pod_from_running_is_named() -> None:
    def waiting(reason: str) -> Any:
        return pod({"waiting": {"reason": reason, "message": "a sentence"}}, "Pending")

    assert start_problem(pod({"waiting": {"reason": "ContainerCreating"}}), MAIN) is None
    assert start_problem(waiting("InvalidImageName"), MAIN) == StartProblem(
        "InvalidImageName", "a sentence", is_final=True
    )
    assert start_problem(waiting("ImagePullBackOff"), MAIN) == StartProblem(
        "ImagePullBackOff", "a sentence", is_retried=True
    )
    unschedulable = pod(None, "Pending", ("PodScheduled", "False", "Unschedulable"))
    problem = start_problem(unschedulable, MAIN)
    assert problem is not None
    assert (problem.is_final, problem.is_retried) == (False, False)
    gated = pod(None, "Pending", ("PodScheduled", "False", "SchedulingGated"))
    gated["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    problem = start_problem(gated, MAIN)
    assert problem is not None
    assert problem.reason == "Queued"
    gated["spec"] = {}
    assert start_problem(gated, MAIN) is None, "it was admitted just now"


def test_a_node_that_cannot_mount_a_volume_is_known_from_a_condition() -> None:
    def creating(ready: str) -> Any:
        conditions = ("PodReadyToStartContainers", ready, "")
        return pod({"waiting": {"reason": "ContainerCreating"}}, "Pending", conditions, name="x")

    assert start_problem(creating("True"), MAIN) is None, "its image is being pulled"
    problem = start_problem(creating("False"), MAIN)
    assert problem is not None
    assert (problem.is_preparing, problem.is_final, problem.is_retried) == (True, False, False)
