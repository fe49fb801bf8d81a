"""The record of a job on Kubernetes that outlives its pods: a ConfigMap with the ends of its files.

It is copied from the job's directory while the master runs, and once more at the end. Clients read
it when they reach no master. Only the newest master writes it: it has the number of its term, and
is replaced by compare and swap.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, JsonObject, KubernetesApi
from edl_kubernetes.master.api_retry import retry_until_answered
from edl_master.adapters.job_directory import to_json
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_TERM = "edl/term"

_LARGE: tuple[Any, ...] = ("curves", "workers", "settings", "dead_letters", "warnings", "metrics")
"""The fields that a status drops, in this order, while it is too large for an object; of dead
letters, it drops the last ones."""

# An object has at most 1 MiB; the limits are in bytes, and leave room for JSON's escapes.
_STATUS_BYTES = 200 << 10
_EVENTS_BYTES = 128 << 10
_TIMELINE_BYTES = 128 << 10
_ALL_LOGS_BYTES = 160 << 10
_LOG_BYTES = 8 << 10


class JobRecord:
    """The record of one job.

    Args:
        api: of the cluster.
        namespace: of the job.
        job: name of the job.
        owner: reference to the Job; the record is deleted with it.
        term: of this master.
        folder: directory of the job.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        job: str,
        owner: JsonObject,
        term: int,
        folder: Path,
    ) -> None:
        self._api = api
        self._all = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = objects.object_name(job)
        self._metadata: JsonObject = {
            "name": self._name,
            "labels": objects.labels(job, objects.MASTER),
            "ownerReferences": [owner],
            "annotations": {_TERM: str(term)},
        }
        self._term = term
        self._folder = folder
        self._last: Mapping[str, str] = {}
        self._writing = threading.Lock()

    def follow(self) -> None:
        """Keep the record up to date from now on, as long as this process lives."""
        threading.Thread(target=self._write_repeatedly, name="record", daemon=True).start()

    def complete(self) -> None:
        """Write the last state of the files; waits until the API server answers.

        Raises:
            ApiError: the Job is gone, or its ConfigMap may not be written.
        """
        retry_until_answered(self.write, "writing the job's record")

    def conclude(self, status: job_pb2.JobStatus) -> None:
        """Write the end of a job whose directory may be out of reach; waits as ``complete`` does.

        Raises:
            ApiError: as ``complete``.
        """
        end = {objects.STATUS_KEY: to_json(status)}
        retry_until_answered(lambda: self.write(end), "writing the job's record")

    def write(self, instead: Mapping[str, str] | None = None) -> None:
        """Write what is new; nothing if a newer master has written.

        Args:
            instead: of what the files have under these keys.

        Raises:
            ApiError, ApiUnavailable: the record is as it was, or written.
        """
        with self._writing:
            content = {**collect(self._folder), **(instead or {})}
            while content != self._last:
                if self._replace(content):
                    self._last = content

    def _write_repeatedly(self) -> None:
        stopped = threading.Event()
        while not stopped.wait(_EVERY_S):
            try:
                self.write()
            except (ApiError, ApiUnavailable, OSError) as error:
                log.warning("the job's record was not written: %s", error)

    def _replace(self, content: Mapping[str, str]) -> bool:
        """False if the record has changed meanwhile."""
        item: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "data": dict(content)}
        item["metadata"] = dict(self._metadata)
        try:
            found = self._api.get(f"{self._all}/{self._name}")
        except ApiError as error:
            if error.status != 404:
                raise
            found = None
        try:
            if found is None:
                self._api.create(self._all, item)
            elif int(found["metadata"].get("annotations", {}).get(_TERM, 0)) > self._term:
                log.warning("a newer master writes the job's record")
            else:
                item["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
                self._api.replace(f"{self._all}/{self._name}", item)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True


def collect(folder: Path) -> dict[str, str]:
    """Return the content of a record: status, last events and spans, and the ends of all logs."""
    logs: dict[str, str] = {}
    left = _ALL_LOGS_BYTES
    for path in sorted((folder / job_directory.LOGS).glob("*.log"), key=_age):
        if left <= 0:
            break
        logs[path.stem] = _end_of(path, min(left, _LOG_BYTES))
        left -= len(logs[path.stem].encode())
    return {
        objects.STATUS_KEY: _status(folder / job_directory.STATUS),
        objects.EVENTS_KEY: _end_of(folder / job_directory.EVENTS, _EVENTS_BYTES),
        objects.TIMELINE_KEY: _end_of(folder / job_directory.TIMELINE, _TIMELINE_BYTES),
        objects.LOGS_KEY: json.dumps(logs, ensure_ascii=False),
    }


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def _status(path: Path) -> str:
    """Return the status, without as much of what is large as needed to make it fit."""
    try:
        text = path.read_text()
        if len(text.encode()) <= _STATUS_BYTES:
            return text
        status = json_format.Parse(text, job_pb2.JobStatus(), True)
    except (OSError, json_format.ParseError, UnicodeDecodeError):
        return ""
    for name in _LARGE:
        if name == "dead_letters":
            _shorten_dead_letters(status)
        else:
            status.ClearField(name)
        text = to_json(status)
        if len(text.encode()) <= _STATUS_BYTES:
            return text
    status.error.ClearField("detail")
    return to_json(status)


def _shorten_dead_letters(status: job_pb2.JobStatus) -> None:
    """Remove their tracebacks, and then as many of the last ones as needed to make it fit."""
    for letter in status.dead_letters:
        letter.error.ClearField("detail")
    while status.dead_letters and len(to_json(status).encode()) > _STATUS_BYTES:
        del status.dead_letters[len(status.dead_letters) // 2 :]


def _end_of(path: Path, nbytes: int) -> str:
    """Return the last whole lines of a file, in at most ``nbytes`` bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - nbytes)
            file.seek(start)
            content = file.read(nbytes)
    except OSError:
        return ""
    if start:
        content = content[content.find(b"\n") + 1 :]
    # A torn last line belongs to what comes next; escapes must not multiply the size.
    content = content[: content.rfind(b"\n") + 1]
    return content.decode(errors="replace").replace("\x1b", "").replace("\0", "")
