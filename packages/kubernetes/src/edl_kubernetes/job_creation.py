"""Creates the objects of a job: all of them, or none."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from edl.plugins.backends import Say, silent
from edl.plugins.job_status import to_json
from edl.plugins.submissions import Submission
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.cluster_job import (
    SUBMISSION_S,
    created_s,
    is_being_deleted,
    is_being_submitted,
)
from edl_kubernetes.core import manifest
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.job_identities import NewIdentities
from edl_kubernetes.job_objects import LABEL_MANAGED, is_managed
from edl_kubernetes.outages import POLL_S, RETRY_S, retry_unanswered
from edl_kubernetes.owned_objects import create_owned
from edl_kubernetes.placement import RESOURCES, ClusterPlacement, read_templates
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.identity.page_key import PageKey

_UNRELEASED_S = 60.0
"""The time after which another submission's Job that is still not released counts as abandoned."""

_ABANDONED_S = 3600.0
"""The age at which any submission removes what an interrupted one has left."""


@dataclass(slots=True)
class JobCreation:
    """Creates the objects of one job.

    Attributes:
        job: the Job object, suspended and marked as one that is being submitted.
        make_owned: returns all other objects.
        is_queued: whether a queue or a person releases the Job, rather than this submission.
    """

    cluster: ChosenCluster
    job: JsonObject
    make_owned: Callable[[], Iterable[JsonObject]]
    is_queued: bool
    _mark: str = field(default_factory=lambda: secrets.token_hex(8))
    """An annotation that identifies the Job until its uid is known."""
    _uid: str = ""

    @classmethod
    def of_submission(
        cls, cluster: ChosenCluster, placement: ClusterPlacement, job: Submission
    ) -> JobCreation:
        """Return the creation of a job that was submitted."""
        namespace = cluster.connect().namespace
        job_object = manifest.job_object(job, namespace, read_templates(job), suspended=True)

        def make_owned() -> Iterator[JsonObject]:
            text = to_json(placement.encode(job))
            yield from manifest.owned_objects(job, namespace, text, page_secrets())
            new = NewIdentities(job.name)
            yield from manifest.identity_objects(job, namespace, new.content)

        return cls(cluster, job_object, make_owned, manifest.is_queued(job))

    def create(self, say: Say = silent) -> bool:
        """Create all objects; the Job is suspended until the last one exists.

        Args:
            say: called with a sentence about what this waits for.

        Returns:
            False if a job of this name exists.

        Raises:
            EdlError: an object was refused or exists, or the cluster does not answer. What was
                created is deleted again; if that fails, the remedy names the command for it.
        """
        connection = self.cluster.connect()
        try:
            made = self._create_first(connection, say)
            if made is None:
                return False
            self._uid = made["metadata"]["uid"]
            self._remove_abandoned(connection, created_s(made))
            for item in self.make_owned():
                create_owned(connection, item, made, say)
            retry_unanswered(lambda: self._release(connection), RETRY_S)
        except (ApiError, ApiUnavailable) as error:
            failure = self.cluster.translate(error, "creating the job")
            self.withdraw(failure)
            raise failure from None
        except BaseException as failure:  # Ctrl-C, too
            self.withdraw(failure)
            raise
        return True

    def withdraw(self, failure: BaseException) -> None:
        """Delete the Job and, with it, everything else.

        Args:
            failure: the reason. If the Job cannot be deleted, the command that deletes it later is
                added to it.
        """
        # After Ctrl-C, the user does not want to wait.
        timeout_s = RETRY_S if isinstance(failure, Exception) else 0.0
        try:
            retry_unanswered(self._delete, timeout_s)
        except (ApiError, ApiUnavailable):
            left = (
                "The job may still be in the cluster, and start there. When the cluster answers"
                f" again, remove the job: {self._removal}"
            )
            if isinstance(failure, EdlError):
                failure.remedy = f"{failure.remedy} {left}".lstrip()
            else:
                failure.add_note(left)

    @property
    def _removal(self) -> str:
        """A command that removes the job whatever the settings and the current context are."""
        connection, metadata = self.cluster.connect(), self.job["metadata"]
        context = ("--context", connection.context) if connection.context else ()
        options = (*context, "--namespace", metadata["namespace"])
        return shlex.join(("edl", "delete", self._name, "--stop", "--yes", *options))

    @property
    def _name(self) -> str:
        """The name of the job, as users know it."""
        return str(self.job["metadata"]["labels"][objects.LABEL_JOB])

    def _create_first(self, connection: ClusterConnection, say: Say) -> JsonObject | None:
        """Create the Job, and return it as the cluster has it; None if the name is in use.

        While another submission of the name or the deletion of a former job is in progress, this
        waits for its end. It replaces what a killed submission has left.

        Raises:
            EdlError: JOB_EXISTS; the name did not become free in time.
        """
        seen, since, reported = "", 0.0, ""
        other: JsonObject | None = None
        deadline = time.monotonic() + SUBMISSION_S
        while time.monotonic() < deadline:
            made = retry_unanswered(lambda: self._create_job(connection), RETRY_S)
            if made is not None:
                return made
            other = retry_unanswered(lambda: self._find(connection), RETRY_S)
            if other is not None:
                is_removed = is_being_deleted(other)
                if not (is_removed or is_being_submitted(other)):
                    return None
                if other["metadata"]["uid"] != seen:
                    seen, since = other["metadata"]["uid"], time.monotonic()
                what = (
                    "the removal of a former job" if is_removed else "the end of another submission"
                )
                if what != reported:
                    reported = what
                    say(f"{self._name} waits for {what} of its name")
                # Time is counted from when this process first saw the Job: the clock of this
                # machine may differ from the cluster's.
                if not is_removed and time.monotonic() - since > _UNRELEASED_S:
                    retry_unanswered(partial(self._remove, connection, other), RETRY_S)
                    continue
            time.sleep(POLL_S)
        raise self._name_in_use(connection, other)

    def _name_in_use(self, connection: ClusterConnection, other: JsonObject | None) -> EdlError:
        """Return the error that other Jobs have had the name for too long."""
        namespace = self.job["metadata"]["namespace"]
        if other is not None and is_being_deleted(other):
            held = ", ".join(other["metadata"].get("finalizers") or ())
            what = f"the former job {self._name} was deleted, and is still there"
            what += f": its finalizers hold it ({held})" if held else ""
            command = f"kubectl --namespace {namespace} describe job {other['metadata']['name']}"
            remedy = f"Choose another --name, or see what holds it: {command}"
        else:
            what = f"other submissions of the name {self._name} come and go,"
            what += f" for {SUBMISSION_S:.0f} s now"
            remedy = "Choose another --name, or end what creates and deletes jobs of this name."
        where = f"{connection.cluster}/{namespace}/{self._name}"
        return EdlError(ErrorCode.JOB_EXISTS, what, where=where, remedy=remedy)

    def _remove_abandoned(self, connection: ClusterConnection, now: float) -> None:
        """Remove the Jobs of any name whose submissions were interrupted long ago.

        Args:
            now: the time by the cluster's clock: this machine's may be wrong by hours.
        """
        with contextlib.suppress(ApiError, ApiUnavailable):  # the next submission tries again
            for item in connection.api.list(self._jobs_path(connection), LABEL_MANAGED).items:
                if is_being_submitted(item) and now - created_s(item) > _ABANDONED_S:
                    self._remove(connection, item)

    def _create_job(self, connection: ClusterConnection) -> JsonObject | None:
        """Create the Job, and return it as the cluster has it; None if the name is in use."""
        annotations = self.job["metadata"].setdefault("annotations", {})
        annotations[objects.ANNOTATION_SUBMITTING] = self._mark
        try:
            return connection.api.create(self._jobs_path(connection), self.job)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = self._find(connection)
            if found is not None and not is_managed(found):
                raise
        # An earlier attempt may have had an effect although it was not answered.
        return found if found is not None and self._is_own(found) else None

    def _find(self, connection: ClusterConnection) -> JsonObject | None:
        """Return the Job of this name; None if there is none."""
        try:
            return connection.api.get(self._job_path(connection))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def _is_own(self, found: JsonObject) -> bool:
        metadata = found["metadata"]
        mark = (metadata.get("annotations") or {}).get(objects.ANNOTATION_SUBMITTING)
        return self._mark == mark or self._uid == metadata["uid"]

    def _delete(self) -> None:
        connection = self.cluster.connect()
        found = self._find(connection)
        if found is None or not self._is_own(found):
            return
        self._remove(connection, found)

    def _remove(self, connection: ClusterConnection, item: JsonObject) -> None:
        metadata = item["metadata"]
        path = f"{self._jobs_path(connection)}/{metadata['name']}"
        try:
            connection.api.delete(path, uid=metadata["uid"])
        except ApiError as error:
            if error.status not in (404, 409):  # it is gone, or a new Job has its name
                raise

    def _release(self, connection: ClusterConnection) -> None:
        changes: JsonObject = {
            "metadata": {
                "annotations": {objects.ANNOTATION_SUBMITTING: None},
                # The patch is refused if the Job of this name belongs to another submission.
                "uid": self._uid,
            },
        }
        if not self.is_queued:
            changes["spec"] = {"suspend": False}
        connection.api.patch(self._job_path(connection), changes)

    def _jobs_path(self, connection: ClusterConnection) -> str:
        return connection.path(RESOURCES["Job"], self.job["metadata"]["namespace"])

    def _job_path(self, connection: ClusterConnection) -> str:
        return f"{self._jobs_path(connection)}/{self.job['metadata']['name']}"


def page_secrets() -> dict[str, str]:
    """Return new keys to the page and the metrics of a job, as entries of its Secret."""
    key = PageKey.create()
    return {objects.PAGE_KEY: key.text, objects.METRICS_TOKEN: key.metrics_token}
