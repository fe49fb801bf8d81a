"""The pods of a job's master: which one answers, and why one does not start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from edl_kubernetes.core.templates import JsonObject
from edl_runtime.kubernetes import objects
from edl_runtime.monitoring.log_lines import readable

_NEVER = ("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RunContainerError")
_NOT_YET = (
    *("ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError"),
)
_FINAL_MESSAGES = (
    "not found",
    "manifest unknown",
    "no match for platform",
    "unauthorized",
    "denied",
)
"""What a registry says that another attempt will not change. Kubernetes has no codes for it: a
status repeats the registry's words."""

_CANNOT_RUN = ("StartError", "ContainerCannotRun")
"""Reasons of a container whose program the runtime of the node could not start."""

_IMAGE = (
    "Use an image that edl zoo build has made, or one made from its base image, for the"
    " architecture of the nodes; --node-selector chooses nodes."
)

_MISSING = ("not found", "non-existent")
"""What a node says of a Secret, a ConfigMap, or a key of one that a volume refers to."""


@dataclass(frozen=True, slots=True)
class MasterProblem:
    """Why a master does not start.

    Attributes:
        what: a clause, with the words of Kubernetes.
        is_final: waiting would not help.
        is_room: the cluster has no room for the pod.
        has_run: the container ran; its log says more.
        container: whose log.
        unprepared: the pod, while its node makes volumes and network ready; events say more.
    """

    what: str
    remedy: str
    is_final: bool = False
    is_room: bool = False
    has_run: bool = False
    unprepared: str = ""
    container: str = objects.CONTAINER

    def with_events(self, warnings: Sequence[str]) -> MasterProblem:
        """The same one with what the node has said last, which may be that waiting is in vain."""
        if not warnings:
            return self
        message = readable(warnings[-1])
        return replace(
            self, what=f"{self.what}: {message}", is_final=any(each in message for each in _MISSING)
        )

    @property
    def patient(self) -> MasterProblem:
        """The same one with the option that would have waited longer."""
        remedy = f"{self.remedy} Or increase --start-timeout."
        return replace(self, remedy=remedy)


class StartPhase(StrEnum):
    """What every start of a master goes through, in words that continue after "it waits:"."""

    NO_POD = "Kubernetes has not made its pod yet"
    UNSCHEDULED = "no node has been chosen for its pod yet"
    UNPREPARED = "its volumes or its network are not ready"
    INIT = "the init containers of its pod are running"
    CREATING = "its node gets the image and makes the container"
    RUNNING = "it runs, and does not answer yet"
    DISRUPTED = "its pod was taken away, and another one follows"


def start_phase(pod: JsonObject | None) -> StartPhase:
    """How far the start has come of a master's newest pod, which is not ready."""
    if pod is None:
        return StartPhase.NO_POD
    if _is_disrupted(pod):
        return StartPhase.DISRUPTED
    if not pod.get("spec", {}).get("nodeName"):
        return StartPhase.UNSCHEDULED
    state = _container(pod).get("state", {})
    if "running" in state or "terminated" in state:
        return StartPhase.RUNNING
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodReadyToStartContainers" and condition["status"] == "False":
            return StartPhase.UNPREPARED
    if state.get("waiting", {}).get("reason") == "PodInitializing":
        return StartPhase.INIT
    return StartPhase.CREATING


def newest_pod(pods: Sequence[JsonObject]) -> JsonObject | None:
    """The one that was created last; None if there is none."""
    return max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)


def ready_pod(pods: Sequence[JsonObject]) -> JsonObject | None:
    """The newest pod that is ready; None if there is none."""
    ready = [pod for pod in pods if _is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return max(ready, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)


def start_problem(pods: Sequence[JsonObject]) -> MasterProblem | None:
    """What keeps the newest pod from being ready, if it is known."""
    newest = newest_pod(pods)
    if newest is None:
        return None
    status = newest.get("status", {})
    container = _container(newest)
    if not _is_disrupted(newest) and (problem := _before(status)):
        return problem
    if problem := _waiting(container.get("state", {}).get("waiting", {})):
        return problem
    if ended := container.get("state", {}).get("terminated"):
        return None if _is_disrupted(newest) else _ended(ended)
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return _unschedulable(condition.get("message", ""))
        if condition["type"] == "PodReadyToStartContainers" and condition["status"] == "False":
            return _unprepared(newest["metadata"]["name"])
    return None


def _unschedulable(message: str) -> MasterProblem:
    if "PersistentVolumeClaim" in message or "persistentvolumeclaim" in message:
        return MasterProblem(
            f"its volume is not available: {message}",
            "Check --state-volume and --volumes: kubectl describe pvc says what a claim waits for,"
            " such as a storage class that does not exist.",
            is_room=True,
        )
    return MasterProblem(
        f"no node has room for it: {message}",
        "Ask for less with --master-resources, or wait longer with --start-timeout.",
        is_room=True,
    )


def _unprepared(pod: str) -> MasterProblem:
    return MasterProblem(
        "its volumes or its network are not ready",
        f"Check --volumes, --state-volume and the pod template: kubectl describe pod {pod} shows"
        " what the node waits for.",
        unprepared=pod,
    )


def _before(status: JsonObject) -> MasterProblem | None:
    """Return why an init container has not completed; None if all have."""
    for one in status.get("initContainerStatuses") or ():
        state = one.get("state", {})
        if problem := _waiting(state.get("waiting", {})):
            return problem
        ended = state.get("terminated", {})
        if code := ended.get("exitCode"):
            message = readable(ended.get("message", "").strip())
            return MasterProblem(
                f"the init container {one['name']} ended with exit code {code}"
                + (f": {message.splitlines()[-1]}" if message else ""),
                "Correct the pod template; the end of that container's log is below.",
                is_final=True,
                has_run=True,
                container=one["name"],
            )
    return None


def _waiting(waiting: JsonObject) -> MasterProblem | None:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason not in _NEVER + _NOT_YET:
        return None
    is_image = "Image" in reason
    remedy = (
        "Check --image, its architecture, and --image-pull-secrets."
        if is_image
        else "Correct --env-from, --volumes or the pod template."
    )
    is_final = reason in _NEVER or any(word in message for word in _FINAL_MESSAGES)
    return MasterProblem(f"{reason}: {message}".rstrip(": "), remedy, is_final=is_final)


def _ended(ended: JsonObject) -> MasterProblem:
    message, code = readable(ended.get("message", "").strip()), ended.get("exitCode")
    # Indented lines belong to the one before them, as a remedy does to its error.
    lines = [line for line in message.splitlines() if not line[:1].isspace()]
    last = lines[-1] if lines else message or ended.get("reason", "")
    if ended.get("reason") in _CANNOT_RUN:
        return MasterProblem(f"its container cannot be started: {last}", _IMAGE, is_final=True)
    # An image of another architecture, or one without edl_master, ends with the exit code of a
    # failed program. Only its last words differ: they are quoted, and the remedy covers both.
    return MasterProblem(
        f"it ended with exit code {code}: {last}",
        f"The end of its log is below. If edl_master did not run at all: {_IMAGE}",
        is_final=True,
        has_run=True,
    )


def _is_ready(pod: JsonObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def _is_disrupted(pod: JsonObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return "deletionTimestamp" in pod["metadata"] or any(
        it["type"] == "DisruptionTarget" and it["status"] == "True" for it in conditions
    )


def _container(pod: JsonObject) -> JsonObject:
    for found in pod.get("status", {}).get("containerStatuses") or ():
        if found["name"] == objects.CONTAINER:
            return dict(found)
    return {}
