"""Creates the objects of a job: all of them, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
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
    """The objects of one job.

    Attributes:
        own: the Job, suspended and marked as one that is being submitted.
        owned: makes all other objects.
        is_queued: somebody else releases the Job.
    """

    session: ClusterSession
    own: JsonObject
    owned: Callable[[], Iterable[JsonObject]]
    is_queued: bool

    @classmethod
    def of_submission(
        cls, session: ClusterSession, placement: ClusterPlacement, job: Submission
    ) -> JobCreation:
        """A new job."""
        namespace = session.connect().namespace
        own = manifest.job_object(job, namespace, read_templates(job), suspended=True)
        annotations = own["metadata"].setdefault("annotations", {})
        annotations[objects.ANNOTATION_SUBMITTING] = "true"

        def owned() -> Iterator[JsonObject]:
            text = codec.to_json(placement.encode(job))
            yield from manifest.owned_objects(job, namespace, text, page_secrets())
            new = NewIdentities(job.name)
            yield from manifest.identity_objects(job, namespace, new.content)

        return cls(session, own, owned, manifest.is_queued(job))

    def create(self) -> bool:
        """Create all objects; the Job is suspended until the last one exists.

        Returns:
            False if a job of this name exists.

        Raises:
            EdlError: an object was refused; nothing is left.
        """
        connection = self.session.connect()
        try:
            made = self._create_job(connection)
            if made is None:
                return False
            try:
                for item in self.owned():
                    create_owned(connection, item, made)
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
        try:
            return connection.api.create(self._place(connection), self.own)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None

    def _release(self, connection: ClusterConnection) -> None:
        changes: JsonObject = {
            "metadata": {"annotations": {objects.ANNOTATION_SUBMITTING: None}},
        }
        if not self.is_queued:
            changes["spec"] = {"suspend": False}
        connection.api.patch(self._path(connection), changes)

    def _place(self, connection: ClusterConnection) -> str:
        return connection.place(KINDS["Job"], self.own["metadata"]["namespace"])

    def _path(self, connection: ClusterConnection) -> str:
        return f"{self._place(connection)}/{self.own['metadata']['name']}"


def page_secrets() -> dict[str, str]:
    """What opens the page and the metrics of a new job, as entries of its Secret."""
    key = PageKey.create()
    return {objects.PAGE_KEY: key.text, objects.METRICS_TOKEN: key.metrics_token}
