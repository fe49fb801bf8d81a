"""Selects the pod that is a job's master at the moment, or explains why none starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from edl_kubernetes.cluster import objects
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.monitoring.log_lines import readable

_FINAL_REASONS = (
    *("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RunContainerError"),
)
_RETRIED_REASONS = (
    *("ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError"),
)
_FINAL_MESSAGES = (
    "not found",
    "manifest unknown",
    "no match for platform",
    "unauthorized",
    "denied",
)
"""Messages of registries after which another attempt cannot succeed. Kubernetes has no codes for
them: a status repeats the registry's words."""

_CANNOT_RUN = ("StartError", "ContainerCannotRun")
"""Reasons with which a container ends whose program the node could not start."""

_IMAGE_REMEDY = (
    "Use an image that edl zoo build has made, or one made from its base image, for the"
    " architecture of the nodes; --node-selector chooses nodes."
)

_SCHEDULING_REMEDIES = (
    (
        "Insufficient ",
        "Ask for less with --master-resources, or wait longer with --start-timeout.",
    ),
    (
        "node affinity/selector",
        "Check --node-selector: kubectl get nodes --show-labels lists what nodes have.",
    ),
    ("untolerated taint", "Tolerate a taint that the message names with --tolerations."),
)
"""Words of the scheduler with the remedy for each; a message may have several of them."""

_MISSING = ("not found", "non-existent")
"""Words of a node about a missing Secret or ConfigMap, or a missing key, of a volume."""


@dataclass(frozen=True, slots=True)
class MasterProblem:
    """The reason why a master does not start.

    Attributes:
        what: a clause, with the words of Kubernetes.
        remedy: what the user can do about it.
        is_final: whether waiting is useless.
        lacks_room: whether the cluster has no room for the pod.
        lacks_volume: whether a volume is what it waits for; the claim's events say more.
        has_run: whether the container ran; its log says more.
        is_unprepared: whether the node still prepares volumes and network; the pod's events say
            more.
        pod: the name of the pod.
        container: the name of the container that failed.
    """

    what: str
    remedy: str
    is_final: bool = False
    lacks_room: bool = False
    lacks_volume: bool = False
    has_run: bool = False
    is_unprepared: bool = False
    pod: str = ""
    container: str = objects.CONTAINER

    def with_events(self, warnings: Sequence[str]) -> MasterProblem:
        """Return the problem with the node's last warning, which may show that it is final."""
        if not warnings:
            return self
        message = readable(warnings[-1])
        return replace(
            self, what=f"{self.what}: {message}", is_final=any(each in message for each in _MISSING)
        )

    def with_timeout_remedy(self) -> MasterProblem:
        """Return the problem with the option for waiting longer in its remedy."""
        remedy = f"{self.remedy} Or increase --start-timeout."
        return replace(self, remedy=remedy)


class StartPhase(StrEnum):
    """A phase of a master's start, in words that continue the sentence "it waits:"."""

    NO_POD = "Kubernetes has not made its pod yet"
    UNSCHEDULED = "no node has been chosen for its pod yet"
    UNPREPARED = "its volumes or its network are not ready"
    INIT = "the init containers of its pod are running"
    CREATING = "its node gets the image and makes the container"
    RUNNING = "it runs, and does not answer yet"
    DISRUPTED = "its pod was taken away, and another one follows"


def start_phase(pod: JsonObject | None) -> StartPhase:
    """Return the phase of a start whose newest pod, which is not ready, is given."""
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
    """Return the pod that was created last; None if there is none."""
    return max(pods, key=_created_at, default=None)


def ready_pod(pods: Sequence[JsonObject]) -> JsonObject | None:
    """Return the newest pod that is ready; None if there is none."""
    ready = [pod for pod in pods if _is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return max(ready, key=_created_at, default=None)


def describe_lack_of_node(pods: Sequence[JsonObject]) -> str:
    """Return why no node has the newest pod; empty if one has it, or if there is no pod."""
    newest = newest_pod(pods)
    if newest is None or start_phase(newest) is not StartPhase.UNSCHEDULED:
        return ""
    problem = _pod_problem(newest)
    return problem.what if problem else str(StartPhase.UNSCHEDULED)


def find_problem(pods: Sequence[JsonObject]) -> MasterProblem | None:
    """Return what keeps a master from being ready; None if that is unknown.

    Kubernetes replaces a failed pod at once, so the one that shows why need not be the newest.
    """
    newest = newest_pod(pods)
    if newest is None:
        return None
    candidates = [newest, *(pod for pod in pods if pod is not newest and not _is_disrupted(pod))]
    problems = [_pod_problem(pod) for pod in candidates]
    return next((each for each in problems if each and each.is_final), problems[0])


def _pod_problem(pod: JsonObject) -> MasterProblem | None:
    """Return what keeps a pod from being ready; None if that is unknown."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    container = _container(pod)
    if not _is_disrupted(pod) and (problem := _init_problem(status)):
        return replace(problem, pod=name)
    if problem := _waiting_problem(container.get("state", {}).get("waiting", {})):
        return replace(problem, pod=name)
    if terminated := container.get("state", {}).get("terminated"):
        return None if _is_disrupted(pod) else replace(_termination_problem(terminated), pod=name)
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return _scheduling_problem(condition.get("message", ""))
        if condition["type"] == "PodReadyToStartContainers" and condition["status"] == "False":
            return _preparation_problem(name)
    return None


def _scheduling_problem(message: str) -> MasterProblem:
    if "PersistentVolumeClaim" in message or "persistentvolumeclaim" in message:
        return MasterProblem(
            f"its volume is not available: {message}",
            "Check --state-volume and --volumes: kubectl describe pvc says what a claim waits for,"
            " such as a storage class that does not exist.",
            lacks_room=True,
            lacks_volume=True,
        )
    return MasterProblem(
        f"no node can take it: {message}",
        " ".join(remedy for words, remedy in _SCHEDULING_REMEDIES if words in message)
        or "Check the pod template, or wait longer with --start-timeout.",
        lacks_room=True,
    )


def _preparation_problem(pod: str) -> MasterProblem:
    return MasterProblem(
        "its volumes or its network are not ready",
        f"Check --volumes, --state-volume and the pod template: kubectl describe pod {pod} shows"
        " what the node waits for.",
        is_unprepared=True,
        pod=pod,
    )


def _init_problem(status: JsonObject) -> MasterProblem | None:
    """Return why an init container has not completed; None if all have."""
    for container in status.get("initContainerStatuses") or ():
        state = container.get("state", {})
        if problem := _waiting_problem(state.get("waiting", {})):
            return problem
        terminated = state.get("terminated", {})
        if code := terminated.get("exitCode"):
            message = readable(terminated.get("message", "").strip())
            return MasterProblem(
                f"the init container {container['name']} ended with exit code {code}"
                + (f": {message.splitlines()[-1]}" if message else ""),
                "Correct the pod template; the end of that container's log is below.",
                is_final=True,
                has_run=True,
                container=container["name"],
            )
    return None


def _waiting_problem(waiting: JsonObject) -> MasterProblem | None:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason not in _FINAL_REASONS + _RETRIED_REASONS:
        return None
    is_image = "Image" in reason
    remedy = (
        "Check --image, its architecture, and --image-pull-secrets."
        if is_image
        else "Correct --env-from, --volumes or the pod template."
    )
    is_final = reason in _FINAL_REASONS or any(word in message for word in _FINAL_MESSAGES)
    return MasterProblem(f"{reason}: {message}".rstrip(": "), remedy, is_final=is_final)


def _termination_problem(terminated: JsonObject) -> MasterProblem:
    message, code = readable(terminated.get("message", "").strip()), terminated.get("exitCode")
    # Indented lines belong to the one before them, as a remedy does to its error.
    lines = [line for line in message.splitlines() if not line[:1].isspace()]
    last = lines[-1] if lines else message or terminated.get("reason", "")
    if terminated.get("reason") in _CANNOT_RUN:
        return MasterProblem(
            f"its container cannot be started: {last}", _IMAGE_REMEDY, is_final=True
        )
    # An image of another architecture, or one without edl_master, ends with the exit code of a
    # failed program. Only its last message differs, so that is quoted; the remedy covers both.
    return MasterProblem(
        f"it ended with exit code {code}: {last}",
        f"The end of its log is below. If edl_master did not run at all: {_IMAGE_REMEDY}",
        is_final=True,
        has_run=True,
    )


def _created_at(pod: JsonObject) -> str:
    """Return the time of a pod's creation; all such times have one format, so texts sort them."""
    return str(pod["metadata"]["creationTimestamp"])


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
