"""The state of a job as its objects in the cluster show it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from google.protobuf import json_format

from edl.plugins.job_status import (
    JobEvent,
    JobState,
    JobStatus,
    TimelineSpan,
    decode_events,
    decode_status,
    decode_timeline,
    to_dict,
)
from edl_kubernetes.cluster import objects
from edl_kubernetes.core.templates import JsonObject
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.json_texts import parse_message, parse_object

SUBMISSION_S = 300.0
"""The time after which an unfinished submission counts as interrupted."""

_SUBMITTING = "it is being submitted"
SUSPENDED = "its Job is suspended until a queue, or a person, releases it"


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job as its Job object and its record (the master's ConfigMap) show it.

    Attributes:
        name: the name by which the caller asked for it, with the namespace if that is another one.
        item: the Job object.
        record: the content of the ConfigMap; empty if the master has not written it yet.
        spec: the specification that the master was started with.
    """

    name: str
    item: JsonObject
    record: Mapping[str, str]
    spec: job_pb2.JobSpec

    @property
    def uid(self) -> str:
        return str(self.item["metadata"]["uid"])

    @property
    def annotations(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.item["metadata"].get("annotations") or {}
        return found

    @property
    def is_suspended(self) -> bool:
        return bool(self.item["spec"].get("suspend"))

    @property
    def is_stopped(self) -> bool:
        """Whether ``edl stop --now`` has suspended the Job, which can be released again."""
        return objects.ANNOTATION_STOPPED in self.annotations

    @property
    def has_ended(self) -> bool:
        """Whether Kubernetes starts no master any more."""
        conditions = self.item.get("status", {}).get("conditions") or ()
        return any(
            it["type"] in ("Complete", "Failed") and it["status"] == "True" for it in conditions
        )

    def message(self) -> job_pb2.JobStatus:
        """The recorded status as the master's message."""
        message = job_pb2.JobStatus()
        try:
            parse_message(self.record.get(objects.STATUS_KEY) or "{}", message)
        except json_format.ParseError:
            message.Clear()  # the record is for reading only; the job continues without it
        message.name = self.name
        message.type = message.type or self.spec.type
        message.output = message.output or self.spec.output
        return message

    def status(self) -> JobStatus:
        """The recorded status, with the state that follows from the Job."""
        status = decode_status(self.message())
        state = self._state(status.state)
        waits = self.is_suspended and not state.is_over
        why = _SUBMITTING if is_being_submitted(self.item) else SUSPENDED
        return replace(status, state=state, pending=why if waits else "")

    def events(self, after: int) -> list[JobEvent]:
        """Recorded events with a number above ``after``, oldest first."""
        return decode_events(self.record.get(objects.EVENTS_KEY, "").splitlines(), after)

    def timeline(self) -> list[TimelineSpan]:
        """The recorded last spans of the workers' timeline."""
        return decode_timeline(self.record.get(objects.TIMELINE_KEY, "").splitlines())

    def logs(self) -> Mapping[str, Sequence[str]]:
        """The last lines of each log in the record, by ``master`` and ``worker-N``."""
        try:
            found = parse_object(self.record.get(objects.LOGS_KEY) or "{}")
        except ValueError:
            return {}
        return {str(name): str(text).splitlines() for name, text in found.items()}

    def _state(self, recorded: JobState) -> JobState:
        if recorded.is_final:
            return recorded
        if self.is_stopped:
            return JobState.CANCELLED
        if self.has_ended:
            return JobState.LOST
        if is_being_submitted(self.item):
            return JobState.NOT_STARTED if age_s(self.item) > SUBMISSION_S else JobState.STARTING
        return recorded


def is_being_submitted(item: JsonObject) -> bool:
    """Return whether the client that submits a Job has not released it yet."""
    return objects.ANNOTATION_SUBMITTING in (item["metadata"].get("annotations") or {})


def is_being_deleted(item: JsonObject) -> bool:
    """Whether a Job was deleted and still exists, for example until its pods are deleted."""
    return "deletionTimestamp" in item["metadata"]


def age_s(item: JsonObject) -> float:
    """Return the seconds since an object's creation, by the clock of this machine."""
    return time.time() - created_s(item)


def created_s(item: JsonObject) -> float:
    """Return the time of an object's creation, in seconds since the epoch."""
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def decode_spec(secret: JsonObject, name: str) -> job_pb2.JobSpec:
    """Return the specification in a job's Secret.

    Raises:
        EdlError: DATA_DAMAGED; the Secret was deleted, or its content cannot be read.
    """
    import base64

    try:
        text = base64.b64decode((secret.get("data") or {})[objects.SPEC_KEY])
        return parse_message(text, job_pb2.JobSpec())
    except (KeyError, ValueError, json_format.ParseError) as error:
        lacks = f"its Secret has no {objects.SPEC_KEY}" if secret else "its Secret was deleted"
        reason = lacks if isinstance(error, KeyError) else error
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"the description of job {name} cannot be read: {reason}",
            where=f"secret/{objects.object_name(name)}",
            remedy=f"Delete the job: edl delete {name} --stop --yes",
        ) from None


def describe(spec: job_pb2.JobSpec) -> dict[str, Any]:
    """Return a specification as plain values; its pods are objects, without their images."""
    described = to_dict(spec)
    cluster = described["kubernetes"] or {}
    for key in ("worker_pod", "server_pod"):
        if not cluster.get(key):
            continue
        pod = cluster[key] = json.loads(cluster[key])
        for container in pod["spec"]["containers"]:
            if container["name"] == objects.CONTAINER:
                container.pop("image", None)
    return described
