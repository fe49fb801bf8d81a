"""The number of a master among all masters of its job, taken by compare and swap of a Lease.

``leaseTransitions`` of the job's Lease counts the masters. The pod that increases it by one,
against the version that it has read, is the newest master; a Job may run two pods for a while, and
only one of them can have the highest number. Nothing expires: no clock decides who is the master.

What the term protects, and what it does not:

- A master that can reach the API server learns of a newer one within ``_CHECK_INTERVAL_S``,
  and ends.
- A master asks before it makes anything final: the output, the final status, the exit code.
- A master whose pod was deleted, but whose process runs on since its kubelet has stopped,
  cannot read the Lease (``api_retry.TokenRejected``). It ends as if it had seen a newer master, and
  its end releases the lock of the job's directory to the next one.
- A master that is cut off from the API server, but neither from its workers nor from the state
  volume, does not learn it. It makes nothing final, since it cannot ask. What it writes to the
  volume meanwhile is kept apart by the lock of the job's directory and the owner's mark of the
  snapshots (``checkpoints.py``), not by the term. Its workers continue with it until it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from edl_kubernetes.cluster.api import ApiError, JsonObject, KubernetesApi
from edl_kubernetes.master.api_retry import TokenRejected, retry_until_answered
from edl_runtime.timestamps import rfc3339

log = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 2.0
_COUNT = "leaseTransitions"
_API = "coordination.k8s.io/v1"


class MasterTerm:
    """The term of one master.

    Args:
        api: of the cluster.
        namespace: of the job.
        name: of the Lease.
        owner: reference to the Job; the Lease is deleted with it.
        holder: name of the master's pod.
        clock: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        owner: JsonObject,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._all = f"/apis/{_API}/namespaces/{namespace}/leases"
        self._name = name
        self._owner = owner
        self._holder = holder
        self._clock = clock
        self._superseded = threading.Event()
        self.number = 0
        """From 1; 0: it is not taken yet."""
        self._uid = ""

    def take(self) -> int:
        """Become the newest master of the job; waits until the API server answers.

        Raises:
            ApiError: the service account may not read, create or update the Lease.
            TokenRejected: this pod is gone; nothing was taken.
        """
        while not self.number:
            # An increase that was not answered may have counted: then a number stays unused.
            self.number = retry_until_answered(self._increase, "taking the term", clock=self._clock)
        log.info("this is master %d of the job", self.number)
        return self.number

    def watch(self) -> None:
        """Look for a newer master from now on, as long as this process lives."""
        threading.Thread(target=self._watch, name="term", daemon=True).start()

    @property
    def controller(self) -> JsonObject:
        """The reference to the Lease by which it controls the pods that its holder has made.

        ``kubectl drain`` evicts only pods with a controller. The Job cannot be that of workers: it
        would count them as its own, or give them up. The Lease is deleted with the Job, and the
        pods with the Lease.
        """
        kind = {"apiVersion": _API, "kind": "Lease"}
        return {**kind, "name": self._name, "uid": self._uid, "controller": True}

    @property
    def is_superseded(self) -> bool:
        """Whether a newer master was seen, or the pod of this one is gone."""
        return self._superseded.is_set()

    def confirm(self) -> bool:
        """Ask whether this is the newest master; waits until the API server answers.

        Raises:
            ApiError: the Lease is gone, and with it the Job; or access was withdrawn.
        """
        self._check("confirming the term", time.sleep)
        return not self.is_superseded

    def _watch(self) -> None:
        while not self.is_superseded:
            time.sleep(_CHECK_INTERVAL_S)
            try:
                self._check("looking for a newer master", lambda _: time.sleep(_CHECK_INTERVAL_S))
            except ApiError as error:
                log.warning("the Lease cannot be read: %s", error.message)

    def _check(self, doing: str, sleep: Callable[[float], None]) -> None:
        try:
            lease = retry_until_answered(self._get, doing, sleep, self._clock)
        except TokenRejected as error:
            log.warning("master %d ends: %s", self.number, error)
            self._superseded.set()
            return
        newest = int(lease["spec"].get(_COUNT, 0))
        if newest > self.number:
            log.warning("master %d has taken over from this one, %d", newest, self.number)
            self._superseded.set()

    def _increase(self) -> int:
        """Return the number that this call has taken; 0 if another one was faster."""
        try:
            lease = self._get()
        except ApiError as error:
            if error.status != 404:
                raise
            return self._write(None, 1)
        return self._write(lease, int(lease["spec"].get(_COUNT, 0)) + 1)

    def _write(self, lease: JsonObject | None, number: int) -> int:
        now = rfc3339(time.time(), "microseconds")
        spec: dict[str, Any] = {
            "holderIdentity": self._holder,
            "acquireTime": now,
            "renewTime": now,
            _COUNT: number,
        }
        try:
            if lease is None:
                metadata = {"name": self._name, "ownerReferences": [self._owner]}
                kind = {"apiVersion": _API, "kind": "Lease"}
                made = self._api.create(self._all, {**kind, "metadata": metadata, "spec": spec})
            else:
                made = self._api.replace(f"{self._all}/{self._name}", {**lease, "spec": spec})
        except ApiError as error:
            if error.status != 409:
                raise
            return 0
        self._uid = made["metadata"]["uid"]
        return number

    def _get(self) -> JsonObject:
        return self._api.get(f"{self._all}/{self._name}")
