"""Creates the objects of a job: all of them, or none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from edl import codec
from edl.adapters.kubernetes.job_identities import NewIdentities
from edl.adapters.kubernetes.owned_objects import create_owned
from edl.adapters.kubernetes.placement import KINDS, ClusterPlacement, read_templates
from edl.adapters.kubernetes.session import ClusterConnection, ClusterSession
from edl.core.cluster import manifest
from edl.core.cluster.templates import JsonObject
from edl.core.submission import Submission
from edl_proto.identity.page_key import PageKey
from edl_proto.kubernetes import objects
from edl_proto.kubernetes.api_errors import ApiError, ApiUnavailable


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
        text = codec.to_json(self.placement.encode(self.job))
        key = PageKey.create()
        page = {objects.PAGE_KEY: key.text, objects.METRICS_TOKEN: key.metrics_token}
        new = NewIdentities(self.job.name)
        for item in (
            *manifest.owned_objects(self.job, connection.namespace, text, page),
            *manifest.identity_objects(self.job, connection.namespace, new.content),
        ):
            create_owned(connection, item, own)

    def _release(self, connection: ClusterConnection) -> None:
        changes: JsonObject = {
            "metadata": {"annotations": {objects.ANNOTATION_SUBMITTING: None}},
        }
        if not manifest.is_queued(self.job):
            changes["spec"] = {"suspend": False}
        connection.api.patch(self._path(connection), changes)

    def _path(self, connection: ClusterConnection) -> str:
        return f"{connection.place(KINDS['Job'])}/{objects.object_name(self.job.name)}"
