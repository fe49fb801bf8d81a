"""Reads and changes the objects of jobs, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from edl.plugins.submissions import names
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.cluster.epochs import replace_epochs
from edl_kubernetes.cluster_job import (
    ClusterJob,
    decode_spec,
    is_being_submitted,
)
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.refusals import no_namespace
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2

_JOBS = "batch/v1 jobs"
_SHORT_GRACE_S = 1
"""The grace period of pods to be ended at once: one of 0 would free a pod's name while its
processes may still run."""


class JobObjects:
    """The objects of all jobs that can be reached.

    Every method raises EdlError: JOB_NOT_FOUND for a name that no job has, and
    CLUSTER_UNAVAILABLE or FORBIDDEN.
    """

    def __init__(self, cluster: ChosenCluster) -> None:
        self._cluster = cluster
        self._specs: dict[str, job_pb2.JobSpec] = {}  # by uid: a Job's specification stays
        self._uids: dict[str, str] = {}  # by name: the uid of the Job when it was read last

    def jobs(self) -> list[tuple[str, JsonObject]]:
        """Return the names and Jobs of the chosen namespace, or of all namespaces."""
        everywhere = self._cluster.has_all_namespaces
        with self._translate_errors("listing jobs"):
            connection = self._cluster.connect()
            path = "/apis/batch/v1/jobs" if everywhere else connection.path(_JOBS)
            selector = f"{LABEL_MANAGED},{objects.LABEL_ROLE}={objects.MASTER}"
            items = connection.api.list(path, selector).items
            if not items and not everywhere:
                self._check_namespace(connection)
        found = []
        for item in items:
            metadata = item["metadata"]
            name = metadata["labels"].get(objects.LABEL_JOB, "")
            found.append((f"{metadata['namespace']}/{name}" if everywhere else name, item))
        return found

    def _check_namespace(self, connection: ClusterConnection) -> None:
        """Check that the namespace exists: the lists of one that does not exist are empty, too.

        A user who may not read namespaces gets no check.

        Raises:
            EdlError: USAGE; it does not exist.
        """
        try:
            connection.api.get(f"/api/v1/namespaces/{connection.namespace}")
        except ApiError as error:
            if error.status == 404:
                raise no_namespace(connection.cluster, connection.namespace) from None
            if error.status != 403:
                raise

    def read(self, name: str, *, needs_spec: bool = True) -> ClusterJob:
        """Return a job; without its specification if that is not needed.

        Raises:
            EdlError: DATA_DAMAGED; the specification cannot be read.
        """
        namespace, job = self.locate(name)
        own = objects.object_name(job)
        with self._translate_errors("reading the job", name):
            connection = self._cluster.connect()
            item = connection.api.get(f"{connection.path(_JOBS, namespace)}/{own}")
            if not is_managed(item):
                raise self._job_not_found(name)
            self._uids[name] = item["metadata"]["uid"]
            record = self._find(f"{connection.path('v1 configmaps', namespace)}/{own}")
            spec = self._specs.get(item["metadata"]["uid"], job_pb2.JobSpec())
            if needs_spec and not spec.name:
                spec = self._spec(connection, namespace, job, item)
            replace_epochs(spec, item)
        return ClusterJob(name, item, (record or {}).get("data") or {}, spec)

    def locate(self, name: str) -> tuple[str, str]:
        """Return the namespace of a job, and its name within that."""
        namespace, slash, job = name.rpartition("/")
        bad_namespace = slash and names.find_fault(namespace, names.MAX_NAMESPACE_LENGTH)
        if names.find_fault(job) or bad_namespace or not self._cluster.is_chosen:
            raise self._job_not_found(name)
        return namespace or self._cluster.connect().namespace, job

    def location(self, name: str) -> str:
        """Return the location of a job for messages: cluster, namespace and name."""
        namespace, job = self.locate(name)
        connection = self._cluster.connect()
        return f"{connection.cluster}/{namespace}/{job}"

    def pods(self, name: str, role: str = "") -> Sequence[JsonObject]:
        """Return the existing pods of a job, of one role or of all."""
        namespace, job = self.locate(name)
        selector = f"{LABEL_MANAGED},{objects.LABEL_JOB}={job}"
        if role:
            selector += f",{objects.LABEL_ROLE}={role}"
        with self._translate_errors("listing pods", name):
            connection = self._cluster.connect()
            return connection.api.list(connection.path("v1 pods", namespace), selector).items

    def pod_path(self, name: str, pod: str) -> str:
        """Return the path of a pod in the API."""
        namespace, _ = self.locate(name)
        return f"{self._cluster.connect().path('v1 pods', namespace)}/{pod}"

    def log(self, name: str, pod: str, query: Mapping[str, str]) -> str:
        """Return a pod's log; empty if it has none yet or is gone."""
        try:
            return self._cluster.connect().api.text(f"{self.pod_path(name, pod)}/log", query)
        except ApiError as error:
            if error.status in (400, 404):
                return ""
            raise self._cluster.translate(error, "reading logs") from None
        except ApiUnavailable:
            return ""  # the next poll asks again

    def events(
        self, name: str, kind: str, about: str = "", *, warnings: bool = False
    ) -> Sequence[str]:
        """Return the messages of Kubernetes' events about an object, oldest first.

        There are none if they cannot be read. Kubernetes keeps events for an hour; those of former
        Jobs of the same name are left out once the Job was read.

        Args:
            name: the name of the job.
            kind: the kind of the object, such as ``Pod``.
            about: the name of the object; by default that of the Job.
            warnings: whether only warnings are returned.
        """
        namespace, job = self.locate(name)
        fields = (
            f"involvedObject.kind={kind},involvedObject.name={about or objects.object_name(job)}"
        )
        if not about and (uid := self._uids.get(name)):
            fields += f",involvedObject.uid={uid}"
        with contextlib.suppress(ApiError, ApiUnavailable):
            connection = self._cluster.connect()
            path = connection.path("v1 events", namespace)
            items = connection.api.list(path, fields=fields).items
            items = [it for it in items if not warnings or it.get("type") == "Warning"]
            return [it.get("message", "") for it in sorted(items, key=_last_seen)]
        return ()

    def is_bound(self, name: str, claim: str) -> bool:
        """Return whether a claim is bound to a volume; True if the claim cannot be read."""
        namespace, _ = self.locate(name)
        with contextlib.suppress(ApiError, ApiUnavailable):
            connection = self._cluster.connect()
            path = connection.path("v1 persistentvolumeclaims", namespace)
            found = connection.api.get(f"{path}/{claim}")
            return bool(found.get("status", {}).get("phase") != "Pending")
        return True

    def suspend(self, name: str, reason: str) -> None:
        """End all pods of a job, and keep Kubernetes from starting another master."""
        namespace, job = self.locate(name)
        with self._translate_errors("stopping the job", name):
            connection = self._cluster.connect()
            path = f"{connection.path(_JOBS, namespace)}/{objects.object_name(job)}"
            changes = {
                "metadata": {"annotations": {objects.ANNOTATION_STOPPED: reason}},
                "spec": {"suspend": True},
            }
            connection.api.patch(path, changes)
            for pod in self.pods(name):
                self._remove(self.pod_path(name, pod["metadata"]["name"]))

    def release(self, name: str, num_epochs: int | None = None) -> bool:
        """Restart a job that ``suspend`` has stopped; return False if it was not stopped.

        Args:
            num_epochs: how many it has from now on; None: as before.
        """
        namespace, job = self.locate(name)
        with self._translate_errors("resuming the job", name):
            connection = self._cluster.connect()
            path = f"{connection.path(_JOBS, namespace)}/{objects.object_name(job)}"
            own = self.read(name, needs_spec=False)
            annotations: JsonObject = {objects.ANNOTATION_STOPPED: None}
            if num_epochs is not None:
                annotations[objects.ANNOTATION_EPOCHS] = str(num_epochs)
            while own.is_stopped:
                changes: JsonObject = {
                    # Compare and swap: of several callers, only one can change this version.
                    "metadata": {
                        "annotations": annotations,
                        "resourceVersion": own.item["metadata"]["resourceVersion"],
                    },
                    "spec": {"suspend": False},
                }
                try:
                    connection.api.patch(path, changes)
                    return True
                except ApiError as error:
                    if error.status != 409:
                        raise
                # Another caller has changed it, or the cluster, which records the end of pods.
                own = self.read(name, needs_spec=False)
        return False

    def delete(self, name: str) -> None:
        """Delete a job, and with it everything that it owns."""
        namespace, job = self.locate(name)
        with self._translate_errors("deleting the job", name):
            connection = self._cluster.connect()
            connection.api.delete(f"{connection.path(_JOBS, namespace)}/{objects.object_name(job)}")

    def _spec(
        self, connection: ClusterConnection, namespace: str, job: str, item: JsonObject
    ) -> job_pb2.JobSpec:
        """Return the specification; empty if there is none yet, or the user may not read it."""
        path = f"{connection.path('v1 secrets', namespace)}/{objects.object_name(job)}"
        try:
            secret = self._find(path)
        except ApiError as error:
            if error.status != 403:
                raise
            return job_pb2.JobSpec()
        if secret is None and is_being_submitted(item):
            return job_pb2.JobSpec()
        spec = self._specs[item["metadata"]["uid"]] = decode_spec(secret or {}, job)
        return spec

    def _find(self, path: str) -> JsonObject | None:
        try:
            return self._cluster.connect().api.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def _remove(self, path: str) -> None:
        try:
            self._cluster.connect().api.delete(path, _SHORT_GRACE_S)
        except ApiError as error:
            if error.status != 404:
                raise

    @contextlib.contextmanager
    def _translate_errors(self, doing: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            if name and error.status == 404:
                raise self._job_not_found(name) from None
            raise self._cluster.translate(error, doing) from None
        except ApiUnavailable as error:
            raise self._cluster.translate(error, doing) from None

    def _job_not_found(self, name: str) -> EdlError:
        return EdlError(
            ErrorCode.JOB_NOT_FOUND,
            f"there is no job named {name}",
            where=self._cluster.description,
            remedy="edl list shows all jobs.",
        )


def _last_seen(event: JsonObject) -> str:
    """Return when an event happened last; all such times have one format, so texts sort them."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


_MANAGED = ("app.kubernetes.io/managed-by", "edl")
LABEL_MANAGED = "=".join(_MANAGED)


def is_managed(item: JsonObject) -> bool:
    """Return whether edl has created an object."""
    return _MANAGED in (item["metadata"].get("labels") or {}).items()
