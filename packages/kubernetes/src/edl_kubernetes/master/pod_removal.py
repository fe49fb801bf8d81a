"""Deletes pods of a job, those that nothing waits for in a few attempts."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
from edl_kubernetes.master.pod_record import PodRecord

log = logging.getLogger(__name__)

_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""After attempts to remove a pod that nothing waits for. Few: the ends of others wait behind."""


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """Deletes pods.

    Attributes:
        api: of the cluster.
        pods_path: where the pods are in the API.
        over: set when no further attempt is wanted.
    """

    api: KubernetesApi
    pods_path: str
    over: threading.Event

    def delete(self, pod: PodRecord, grace_s: int | None) -> None:
        """Delete a pod, with its own grace period if none is given; one that is gone is fine.

        Raises:
            ApiError, ApiUnavailable: it may be there still.
        """
        try:
            self.api.delete(f"{self.pods_path}/{pod.instance}", grace_s)
        except ApiError as error:
            if error.status != 404:
                raise

    def remove(self, pod: PodRecord, grace_s: int | None) -> None:
        """Delete a pod that nothing waits for; the Job's deletion removes it at the latest."""
        for pause_s in _PAUSES_S:
            try:
                self.delete(pod, grace_s)
                return
            except (ApiError, ApiUnavailable) as error:
                log.warning("%s was not removed: %s", pod.instance, error)
            if self.over.wait(pause_s):
                return
