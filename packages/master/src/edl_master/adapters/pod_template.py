"""The pods of a job's workers: what they have in common, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from edl_master.core.identifiers import InstanceId, WorkerId
from edl_proto.kubernetes import objects
from edl_proto.kubernetes.api import JsonObject


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What the pods of a job have in common.

    Attributes:
        namespace: of all objects of the job.
        job: name of the job.
        owner: name and uid of the job's Job.
        pod: a v1 Pod as JSON, complete but for name, labels of the instance, owner and arguments.
    """

    namespace: str
    job: str
    owner: tuple[str, str]
    pod: Mapping[str, object]

    @property
    def selector(self) -> str:
        """Of the pods of workers."""
        return f"{objects.LABEL_JOB_UID}={self.owner[1]},{objects.LABEL_ROLE}={objects.WORKER}"

    def render(
        self, instance: InstanceId, worker: WorkerId, attempt: int, command: Sequence[str]
    ) -> JsonObject:
        """The pod of one instance."""
        pod: JsonObject = deepcopy(dict(self.pod))
        metadata = pod.setdefault("metadata", {})
        metadata["name"] = instance
        name, uid = self.owner
        # Not a controller: the Job would count these pods as its own.
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        metadata["ownerReferences"] = [{**owner, "controller": False}]
        metadata.setdefault("labels", {}).update(
            {
                **objects.COMMON_LABELS,
                objects.LABEL_JOB: self.job,
                objects.LABEL_JOB_UID: uid,
                objects.LABEL_ROLE: objects.WORKER,
                objects.LABEL_NUMBER: str(worker),
                objects.LABEL_ATTEMPT: str(attempt),
            }
        )
        for container in pod["spec"]["containers"]:
            if container["name"] == objects.CONTAINER:
                container["command"] = list(command)
                variables = container.setdefault("env", [])
                variables.append({"name": "EDL_INSTANCE", "value": instance})
        return pod
