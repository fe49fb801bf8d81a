"""Creates the objects of a job: all of them, or none."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from edl import codec
from edl.adapters.kubernetes.placement import KINDS, ClusterPlacement, read_templates
from edl.adapters.kubernetes.session import ClusterConnection, ClusterSession
from edl.core.cluster import manifest
from edl.core.cluster.templates import JsonObject
from edl.core.submission import Submission
from edl_proto.kubernetes import objects
from edl_proto.kubernetes.api_errors import ApiError, ApiUnavailable

_POLL_S = 0.5
_REMOVAL_S = 120.0
"""How long the objects of a deleted job of the same name may take to disappear."""

_RETRY_S = 30.0
"""How long an API server that does not answer is asked again."""


@dataclass(frozen=True, slots=True)
class JobCreation:
    """The objects of one job."""

    session: ClusterSession
    placement: ClusterPlacement
    job: Submission

    def create(self) -> bool:
        """Create all objects; the Job is suspended until the last one exists.

        Returns:
            False if a job of this name exists.

        Raises:
            EdlError: an object was refused; nothing is left.
        """
        connection = self.session.connect()
        try:
            own = self._create_job(connection)
            if own is None:
                return False
            try:
                self._create_owned(connection, own)
                self._release(connection)
            except BaseException:  # Ctrl-C, too
                self.withdraw()
                raise
        except (ApiError, ApiUnavailable) as error:
            raise self.session.translate(error, "creating the job") from None
        return True

    def withdraw(self) -> None:
        """Delete the Job and, with it, everything else."""
        connection = self.session.connect()
        with contextlib.suppress(ApiError, ApiUnavailable):
            connection.api.delete(self._path(connection))

    def _create_job(self, connection: ClusterConnection) -> JsonObject | None:
        item = manifest.job_object(
            self.job, connection.namespace, read_templates(self.job), suspended=True
        )
        annotations = item["metadata"].setdefault("annotations", {})
        annotations[objects.ANNOTATION_SUBMITTING] = "true"
        try:
            return connection.api.create(connection.place(KINDS["Job"]), item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None

    def _create_owned(self, connection: ClusterConnection, own: JsonObject) -> None:
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": own["metadata"]["name"],
            "uid": own["metadata"]["uid"],
        }
        text = codec.to_json(self.placement.encode(self.job))
        for item in manifest.owned_objects(self.job, connection.namespace, text):
            item["metadata"]["ownerReferences"] = [owner]
            _create(connection, item, owner["uid"])

    def _release(self, connection: ClusterConnection) -> None:
        changes: JsonObject = {
            "metadata": {"annotations": {objects.ANNOTATION_SUBMITTING: None}},
        }
        if not manifest.is_queued(self.job):
            changes["spec"] = {"suspend": False}
        connection.api.patch(self._path(connection), changes)

    def _path(self, connection: ClusterConnection) -> str:
        return f"{connection.place(KINDS['Job'])}/{objects.object_name(self.job.name)}"


def _create(connection: ClusterConnection, item: JsonObject, owner: str) -> None:
    """Create an object, after one of the same name that is being removed has gone.

    Raises:
        ApiError: it was refused, or another object has its name.
        ApiUnavailable: the server does not answer.
    """
    place = connection.place(KINDS[item["kind"]])
    began = time.monotonic()
    while True:
        try:
            connection.api.create(place, item)
            return
        except ApiUnavailable:
            if time.monotonic() - began > _RETRY_S:
                raise
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            if _is_owned(connection, f"{place}/{item['metadata']['name']}", owner):
                return  # an earlier attempt had an effect although it was not answered
            if time.monotonic() - began > _REMOVAL_S:
                raise
        time.sleep(_POLL_S)


def _is_owned(connection: ClusterConnection, path: str, owner: str) -> bool:
    try:
        found = connection.api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    owners = found["metadata"].get("ownerReferences") or ()
    return any(it["uid"] == owner for it in owners)
