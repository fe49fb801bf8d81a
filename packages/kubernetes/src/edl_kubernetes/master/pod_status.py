"""The meaning of a pod's status: whether its container runs, cannot start, or has ended.

Pods are plain JSON values of the Kubernetes API; ``docs/adr/0018-kubernetes.md`` has the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from edl_master.core.failure_policy import split_exit_code

Pod = Mapping[str, Any]

_KILLED = 9

_WITH_LOG = ("Error", "OOMKilled")
"""Reasons of ends for which the kubelet gives the end of the container's log as the message."""


class Cause(StrEnum):
    """The cause of a pod's end, in words for users."""

    FINISHED = "it ended by itself"
    FAILED = "it failed"
    OUT_OF_MEMORY = "the kernel ended it: its memory limit was exceeded"
    STORAGE_LIMIT = "the kubelet evicted it: it exceeded its own storage limit"
    DEADLINE = "its deadline passed"
    PREEMPTED = "a pod of higher priority took its place"
    QUEUE_EVICTED = "its queue gave its place to others"
    EVICTED = "it was evicted through the API, as when a node is drained"
    TAINTED = "its node was tainted, as one that is lost"
    NODE_LOST = "its node is lost: it did not end within its grace period"
    NODE_GONE = "its node was removed"
    KUBELET_EVICTED = "the kubelet of its node ended it"
    REJECTED = "its node rejected it on arrival"
    DELETED = "it was deleted"
    LOST = "its container was lost"
    INIT_FAILED = "a container failed that runs before it"


DISRUPTIONS = frozenset(
    (
        *(Cause.PREEMPTED, Cause.EVICTED, Cause.TAINTED, Cause.NODE_GONE, Cause.KUBELET_EVICTED),
        *(Cause.REJECTED, Cause.DELETED, Cause.LOST, Cause.NODE_LOST, Cause.QUEUE_EVICTED),
    )
)
"""Causes outside the job; they count as preemptions, not as failures."""

_BY_CONDITION = {
    # reasons of the condition DisruptionTarget
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "DeletionByTaintManager": Cause.TAINTED,
    "DeletionByPodGC": Cause.NODE_GONE,
    "TerminationByKubelet": Cause.KUBELET_EVICTED,
}
_EVICTED_BY_KUEUE = "TerminationTarget"
"""The condition that Kueue sets before it deletes a pod."""

_KUEUE_GATE = "kueue.x-k8s.io/admission"

_FATAL_WAITS = frozenset(
    ("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RunContainerError")
)
"""Every further attempt would end in the same way."""

_SLOW_WAITS = frozenset(
    (
        *("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"),
        *("CreateContainerConfigError", "CreateContainerError"),
    )
)
"""The kubelet tries again: a registry may come back, a Secret may be created."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The end of a pod.

    Attributes:
        exit_code: None if a signal ended it.
        detail: a sentence of Kubernetes, or the end of what the container has said.
        container: whose log says why; empty: that of the container that edl runs.
    """

    cause: Cause
    exit_code: int | None
    signal: int | None
    detail: str = ""
    container: str = ""

    @property
    def is_disruption(self) -> bool:
        return self.cause in DISRUPTIONS

    @property
    def words(self) -> str:
        """The cause with Kubernetes' own sentence; empty if the exit code says everything."""
        if self.cause in (Cause.FINISHED, Cause.FAILED):
            return ""
        return f"{self.cause}: {self.detail}" if self.detail else str(self.cause)


@dataclass(frozen=True, slots=True)
class StartProblem:
    """The reason why a container does not run yet.

    Attributes:
        reason: one of Kubernetes' own words.
        detail: a sentence of the kubelet or the scheduler.
        is_final: waiting cannot help.
        is_retried: the kubelet tries again, which may help.
        is_preparing: the node makes volumes and network ready. Every pod waits for that for a
            moment, and one whose volume cannot be mounted does so forever. None of the three: the
            pod waits for a place.
    """

    reason: str
    detail: str
    is_final: bool = False
    is_retried: bool = False
    is_preparing: bool = False

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def is_running(pod: Pod, container: str) -> bool:
    """Return whether the container has started, even if it has ended since."""
    state = _state(pod, container)
    return "running" in state or "terminated" in state


def start_problem(pod: Pod, container: str) -> StartProblem | None:
    """Return what keeps the container from running, or None if nothing does so far."""
    for status in _statuses(pod, container):
        waiting = status.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        if reason in _FATAL_WAITS or reason in _SLOW_WAITS:
            is_final = reason in _FATAL_WAITS
            return StartProblem(reason, waiting.get("message", ""), is_final, not is_final)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        gates = [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or ()]
        if _KUEUE_GATE in gates:
            detail = "its queue has not admitted it yet; kubectl get workloads shows why"
            return StartProblem("Queued", detail)
        if scheduled.get("reason") == "SchedulingGated" and not gates:
            return None  # the scheduler has not looked at it since the gate went away
        return StartProblem(scheduled.get("reason", ""), scheduled.get("message", ""))
    if _condition(pod, "PodReadyToStartContainers").get("status") == "False":
        # Kubernetes gives the reason in events alone, which masters may not read.
        name = pod["metadata"]["name"]
        detail = f"its volumes or its network are not ready; kubectl describe pod {name} shows why"
        return StartProblem("ContainerCreating", detail, is_preparing=True)
    return None


def is_at_work(pod: Pod, container: str) -> bool:
    """Tell whether the container runs and the pod is not being deleted."""
    is_leaving = "deletionTimestamp" in pod["metadata"]
    has_ended = pod_end(pod, container) is not None
    return is_running(pod, container) and not (has_ended or is_leaving)


def pod_end(pod: Pod, container: str) -> PodEnd | None:
    """Return how the pod ended; None if it has not ended.

    A pod whose container has terminated has ended, whatever else runs in it.
    """
    terminated = _state(pod, container).get("terminated")
    phase = pod.get("status", {}).get("phase")
    if terminated is None and phase not in ("Failed", "Succeeded"):
        return None
    if terminated is None:
        return _end_without_container(pod)
    exit_code, signal = split_exit_code(int(terminated.get("exitCode", 0)))
    cause = _cause(pod, terminated)
    is_log = terminated.get("reason") in _WITH_LOG
    detail = _message(pod) or ("" if is_log else terminated.get("message", ""))
    return PodEnd(cause, exit_code, signal, detail)


def vanished_pod_end() -> PodEnd:
    """Return the end of a pod that is gone and whose last status was not seen."""
    return PodEnd(Cause.DELETED, None, _KILLED)


def given_up() -> PodEnd:
    """Return the end of a pod that is being deleted, and whose node does not report its end."""
    return PodEnd(Cause.NODE_LOST, None, _KILLED)


def _cause(pod: Pod, terminated: Mapping[str, Any]) -> Cause:
    reason = terminated.get("reason", "")
    if reason == "OOMKilled":
        return Cause.OUT_OF_MEMORY
    if disruption := _disruption(pod):
        return disruption
    if reason == "ContainerStatusUnknown":
        return Cause.LOST
    if terminated.get("exitCode") == 0:
        return Cause.FINISHED
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return Cause.DELETED
    return _by_status(pod) or Cause.FAILED


def _end_without_container(pod: Pod) -> PodEnd:
    """Return the end of a pod whose container has never run."""
    cause = _disruption(pod) or _by_status(pod)
    if cause is None and not pod.get("metadata", {}).get("deletionTimestamp"):
        for one in pod.get("status", {}).get("initContainerStatuses") or ():
            failed = one.get("state", {}).get("terminated", {})
            if code := int(failed.get("exitCode", 0)):
                exit_code, signal = split_exit_code(code)
                return PodEnd(Cause.INIT_FAILED, exit_code, signal, one["name"], one["name"])
    return PodEnd(cause or Cause.REJECTED, None, _KILLED, _message(pod))


def _disruption(pod: Pod) -> Cause | None:
    if _condition(pod, _EVICTED_BY_KUEUE).get("status") == "True":
        return Cause.QUEUE_EVICTED
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return None
    return _BY_CONDITION.get(condition.get("reason", ""), Cause.EVICTED)


def _by_status(pod: Pod) -> Cause | None:
    match pod.get("status", {}).get("reason"):
        case "DeadlineExceeded":
            return Cause.DEADLINE
        case "Evicted":
            # The kubelet evicts without a condition when the pod exceeds its own limit.
            return Cause.STORAGE_LIMIT
        case _:
            return None


def _condition(pod: Pod, kind: str) -> Mapping[str, Any]:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Mapping[str, Any] = condition
            return found
    return {}


def _statuses(pod: Pod, container: str) -> Iterator[Mapping[str, Any]]:
    """Yield the statuses of init containers and the container itself, not of other sidecars."""
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    for one in status.get("containerStatuses") or ():
        if one["name"] == container:
            yield one


def _state(pod: Pod, container: str) -> Mapping[str, Any]:
    for one in pod.get("status", {}).get("containerStatuses") or ():
        if one["name"] == container:
            found: Mapping[str, Any] = one.get("state", {})
            return found
    return {}


def _message(pod: Pod) -> str:
    message: str = pod.get("status", {}).get("message", "")
    return message or str(_condition(pod, "DisruptionTarget").get("message", ""))
