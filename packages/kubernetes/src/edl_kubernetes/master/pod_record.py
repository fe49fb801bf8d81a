"""A platform's knowledge about one pod, and its next request about the pod."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError
from edl_kubernetes.master.pod_status import PodEnd, StartProblem
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_runtime.monitoring.log_lines import readable

FIRST_RETRY_S = 1.0
_START_TIMEOUT_S = 60.0
"""How long a pod may wait for its image or configuration before that counts as a failure."""

_UNPREPARED_TOLD_S = 30.0
_UNPREPARED_TIMEOUT_S = 600.0
"""How long a pod may wait for its volumes and network until that is reported, and until it counts
as a failure. Kubernetes takes six minutes to detach a volume from a node that is lost."""

_DENIED_S = 16.0
"""A denial is believed when so long a delay before the next attempt is due: after 15 s of them."""


@dataclass(slots=True)
class PodRecord:
    """One pod; its name is that of the instance."""

    worker: WorkerId
    attempt: int
    instance: InstanceId
    is_created: bool = False
    is_started: bool = False  # and that was reported
    is_ending: bool = False  # its end is being reported
    is_asked: bool = False  # to leave, by this master
    grace_s: int | None = None  # of the deletion that is to be requested, or was
    problem: StartProblem | None = None  # that keeps it from running
    give_up_at: float = math.inf  # if the problem is still there then, waiting cannot help
    lost_at: float = math.inf  # if it is still there then, its node is lost

    def expect_start(
        self, before: StartProblem | None, problem: StartProblem | None
    ) -> tuple[float, ...]:
        """Note when waiting for the start is in vain; returns when to look at the pod."""
        if problem is None or not (problem.is_retried or problem.is_preparing):
            self.give_up_at = math.inf
            return ()
        goes_on = before is not None and before.is_preparing == problem.is_preparing
        if goes_on and not math.isinf(self.give_up_at):
            return ()
        now = time.monotonic()
        if not problem.is_preparing:
            self.give_up_at = now + _START_TIMEOUT_S
            return (self.give_up_at,)
        self.give_up_at = now + _UNPREPARED_TIMEOUT_S
        return (now + _UNPREPARED_TOLD_S, self.give_up_at)


def decode_pod(item: Mapping[str, Any]) -> PodRecord:
    """Return a pod that an earlier master has made; its worker is -1 if its labels were removed."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    try:
        worker = WorkerId(int(labels[objects.LABEL_NUMBER]))
        attempt = int(labels[objects.LABEL_ATTEMPT])
    except (KeyError, ValueError):
        worker, attempt = WorkerId(-1), 0
    return PodRecord(worker, attempt, InstanceId(metadata["name"]), is_created=True)


@dataclass(slots=True)
class Request:
    """A pod to be created or deleted, not before ``at``."""

    pod: PodRecord
    at: float
    retry_s: float = FIRST_RETRY_S


def readable_end(end: PodEnd) -> PodEnd:
    """Describe the end of a pod for users, with the log of a container that failed."""
    return replace(end, detail=readable(end.detail))


def may_pass(error: ApiError, retry_s: float) -> bool:
    """Return whether a refused call is worth another attempt, before which ``retry_s`` goes by."""
    is_early = error.is_denial and retry_s < _DENIED_S
    return error.is_quota or error.status == 409 or is_early
