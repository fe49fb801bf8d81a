"""Reads the logs of a job's pods: of ended ones, and of running ones that do not register."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
from edl_kubernetes.master.pod_record import PodRecord
from edl_master.adapters import worker_logs
from edl_master.core.events import InstanceInspected
from edl_master.core.identifiers import InstanceId
from edl_runtime.local import job_directory
from edl_runtime.monitoring.log_lines import readable

_LINES = 10_000
_LAST_LINES = 20
"""Lines to read: some may be notices of TensorFlow, which explain nothing."""

_READERS = 4
_READS_PER_S = 10
"""A thousand pods may be silent at once, and a log of a node that hangs is waited for."""


@dataclass(frozen=True, slots=True)
class LogsOfPods:
    """The logs of a job's pods.

    Attributes:
        api: of the cluster.
        pods_path: where the pods are in the API.
        folder: gets the logs of pods that have ended.
        role: of the pods.
    """

    api: KubernetesApi
    pods_path: str
    folder: Path
    role: str

    @classmethod
    def of_job(cls, api: KubernetesApi, pods_path: str, job_dir: Path, role: str) -> LogsOfPods:
        """Return logs that are saved where the job has the others; makes that folder."""
        folder = job_dir / job_directory.LOGS
        folder.mkdir(parents=True, exist_ok=True)
        return cls(api, pods_path, folder, role)

    def save(self, pod: PodRecord, container: str = "") -> str:
        """Append a pod's log to its worker's file; returns its end.

        Args:
            container: whose log; by default that of the container that edl runs.
        """
        try:
            text = self._read(pod, _LINES, container)
        except (ApiError, ApiUnavailable) as error:
            text = f"(no log: {error})\n"
        kind = "server" if self.role == objects.SERVER else "worker"
        path = worker_logs.path_of(self.folder, pod.worker, kind)
        return worker_logs.append(path, pod.worker, pod.attempt, text)

    def log_summary(self, pod: PodRecord) -> str:
        """Summarize the log of a running pod in a clause."""
        try:
            return worker_logs.log_summary("pod", readable(self._read(pod, _LAST_LINES)))
        except (ApiError, ApiUnavailable) as error:
            return f"its log cannot be read: {error}"

    def _read(self, pod: PodRecord, lines: int, container: str = "") -> str:
        query = {"container": container or objects.CONTAINER, "tailLines": str(lines)}
        return self.api.text(f"{self.pods_path}/{pod.instance}/log", query)


class PodInspector:
    """Reads the logs of pods that run, in threads of its own: the ends of others do not wait.

    Args:
        logs: of the pods.
        report: gets what each of them says.
        over: set when the answer is no longer wanted.
    """

    def __init__(
        self, logs: LogsOfPods, report: Callable[[InstanceInspected], None], over: threading.Event
    ) -> None:
        self._logs = logs
        self._report = report
        self._over = over
        self._lock = threading.Lock()
        self._open: set[InstanceId] = set()  # guarded by _lock; and not read yet
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="pod-inspector")

    def inspect(self, pod: PodRecord) -> None:
        """Read the log of a pod, unless it is being read."""
        with self._lock:
            if self._over.is_set() or pod.instance in self._open:
                return
            self._open.add(pod.instance)
            self._readers.submit(self._read, pod)

    def _read(self, pod: PodRecord) -> None:
        try:
            if not (pod.is_ending or self._over.is_set()):
                summary = self._logs.log_summary(pod)
                self._report(InstanceInspected(pod.worker, pod.attempt, summary))
                self._over.wait(_READERS / _READS_PER_S)
        finally:
            with self._lock:
                self._open.discard(pod.instance)

    def close(self) -> None:
        """Forget the pods whose logs have not been read yet."""
        with self._lock:
            self._over.set()
            self._readers.shutdown(wait=False, cancel_futures=True)
