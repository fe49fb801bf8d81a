"""The masters of a job before this one, as far as Kubernetes still has their pods.

The Job's limit of failures is out of reach, so that no disruption ends a job, and each loss is
followed by the next master at once. So a master that fails soon after each start would be tried
forever, without a pause; its pods show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from signal import SIGKILL, SIGTERM

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, JsonObject, KubernetesApi
from edl_kubernetes.master import pod_status
from edl_kubernetes.master.api_retry import retry_until_answered
from edl_kubernetes.master.owner_job import OwnerJob
from edl_kubernetes.master.pod_record import readable_end
from edl_master.core.failure_policy import describe_exit
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory
from edl_runtime.monitoring.log_lines import readable

MAX_FAILURES = 6
"""As many as Kubernetes allows a Job by default."""

_FIRST_DELAY_S = 10.0
"""The delay after one failed start; it doubles with each further one, so that all of them add up to
five minutes. Kubernetes itself starts the next master at once."""

_EARLY_FAILURE_S = 120.0
"""A master that has lived longer has worked."""

_LOG_LINES = 15


def find_failed_starts(api: KubernetesApi, namespace: str, owner: OwnerJob) -> Sequence[JsonObject]:
    """Return the latest masters that all failed soon after their start, newest first.

    Waits until the API server answers.

    Raises:
        ApiError: the service account may not list pods.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    selector = f"{objects.LABEL_JOB}={owner.job},{objects.LABEL_ROLE}={objects.MASTER}"
    listing = retry_until_answered(lambda: api.list(path, selector), "finding former masters")
    return failed_starts(
        pod
        for pod in listing.items
        if any(it["uid"] == owner.uid for it in pod["metadata"].get("ownerReferences", ()))
    )


def delay_s(failures: int) -> float:
    """Return how long the next master waits after so many failed starts in a row."""
    return _FIRST_DELAY_S * 2 ** (failures - 1) if failures else 0.0


def failure(api: KubernetesApi, namespace: str, job: str, failed: Sequence[JsonObject]) -> EdlError:
    """Return the error of a job whose masters fail soon after each start.

    Args:
        api: the API of the cluster.
        namespace: the namespace of the job.
        job: the name of the job.
        failed: the pods of these masters, newest first.
    """
    last = failed[0]
    name, end = last["metadata"]["name"], pod_status.pod_end(last, objects.CONTAINER)
    assert end is not None
    end = readable_end(end)
    return EdlError(
        ErrorCode.MASTER_LOST,
        f"the last {len(failed)} masters of job {job} ended soon after their start:"
        f" {describe_exit(end.exit_code, end.signal, end.words)}",
        where=f"pod {name}",
        remedy="Give the master more memory with --master-resources."
        if end.cause is pod_status.Cause.OUT_OF_MEMORY
        else "The end of the master's log is below. Correct what it says, delete the job and"
        " submit it again.",
        detail=_end_of_log(api, f"/api/v1/namespaces/{namespace}/pods/{name}/log"),
    )


def failed_starts(pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the latest masters, newest first, that all failed soon after their start.

    Neither a disruption counts nor a signal from outside, nor that another master was there: such
    an end says nothing about the next start.
    """
    found = []
    for pod in sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True):
        end = pod_status.pod_end(pod, objects.CONTAINER)
        if end is None or _is_from_outside(end):
            continue
        if _lived_s(pod) > _EARLY_FAILURE_S:
            break
        found.append(pod)
    return found


def _is_from_outside(end: pod_status.PodEnd) -> bool:
    if end.cause is pod_status.Cause.OUT_OF_MEMORY:
        return False
    if end.is_disruption or end.cause is pod_status.Cause.FINISHED:
        return True
    return end.signal in (SIGKILL, SIGTERM) or end.exit_code == job_directory.DIRECTORY_TAKEN


def _lived_s(pod: JsonObject) -> float:
    for status in pod["status"].get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated")
        if status["name"] == objects.CONTAINER and ended and ended.get("startedAt"):
            began, over = (
                datetime.fromisoformat(ended[key]) for key in ("startedAt", "finishedAt")
            )
            return (over - began).total_seconds()
    return 0.0


def _end_of_log(api: KubernetesApi, path: str) -> str:
    query = {"container": objects.CONTAINER, "tailLines": str(_LOG_LINES)}
    try:
        return readable(api.text(path, query).strip())
    except (ApiError, ApiUnavailable):
        return ""
