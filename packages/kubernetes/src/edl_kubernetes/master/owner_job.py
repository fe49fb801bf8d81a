"""The Job whose pod runs this master: the owner of everything that the master makes."""

from __future__ import annotations

from dataclasses import dataclass

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, JsonObject, KubernetesApi
from edl_kubernetes.master.api_retry import retry_until_answered
from edl_proto.errors import EdlError, ErrorCode


@dataclass(frozen=True, slots=True)
class OwnerJob:
    """A ``batch/v1`` Job.

    Attributes:
        namespace: of the Job and of all its objects.
        name: of the Job.
        uid: of the Job; a later one of the same name has another.
        job: name of edl's job.
    """

    namespace: str
    name: str
    uid: str
    job: str

    @classmethod
    def of_pod(cls, api: KubernetesApi, namespace: str, pod: str) -> OwnerJob:
        """Return the Job that has made a pod; waits until the API server answers.

        Raises:
            EdlError: USAGE; no Job has made the pod, or it may not be read.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        try:
            found = retry_until_answered(lambda: api.get(path), "reading this pod")
        except ApiError as error:
            raise _no_owner(pod, error.message) from error
        metadata = found["metadata"]
        for owner in metadata.get("ownerReferences", ()):
            if owner["kind"] == "Job":
                job = metadata.get("labels", {}).get(objects.LABEL_JOB, "")
                return cls(namespace, owner["name"], owner["uid"], job)
        raise _no_owner(pod, "no Job has created it")

    @property
    def reference(self) -> JsonObject:
        """The owner reference that makes Kubernetes delete an object along with the Job."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": self.name,
            "uid": self.uid,
            # Not a controller: the Job would count pods as its own.
            "controller": False,
        }

    def accept_failure(self, api: KubernetesApi) -> None:
        """Let the next exit with a code other than 0 be the end of the Job.

        Until then the limit is out of reach, so that no disruption ends the Job. If there were
        disruptions before, the Job controller ends the Job at once, and terminates its pod.

        Raises:
            ApiError: the Job is gone, or may not be changed.
        """
        # With another uid, the Job of this name is a later one, and the change is refused.
        change = {"metadata": {"uid": self.uid}, "spec": {"backoffLimit": 0}}
        retry_until_answered(lambda: api.patch(self._path, change), "ending the Job")

    def is_suspended(self, api: KubernetesApi) -> bool:
        """Tell whether the Job was suspended; asked once, since a terminated pod has no time.

        Raises:
            ApiError: the Job is gone.
            ApiUnavailable: the API server does not answer.
        """
        return bool(api.get(self._path)["spec"].get("suspend"))

    def read(self, api: KubernetesApi) -> JsonObject:
        """Return the Job as it is now.

        Raises:
            ApiError: the Job is gone, or may not be read.
        """
        return retry_until_answered(lambda: api.get(self._path), "reading the Job")

    @property
    def _path(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{self.name}"


def _no_owner(pod: str, why: str) -> EdlError:
    return EdlError(
        ErrorCode.USAGE,
        f"the Job of pod {pod} cannot be found: {why}",
        where=f"pod {pod}",
        remedy="Start masters with edl train --platform kubernetes. Their service account needs"
        " the role edl-master of deploy/kubernetes.",
    )
