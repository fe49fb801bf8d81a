"""The pods of one role of a job: what they have in common, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import JsonObject
from edl_master.core.identifiers import InstanceId, WorkerId

_MASTER_WAIT_S = 1800
"""How long workers wait for the next master: one that follows failed starts waits up to three
minutes, a node may be lost with its volume, and an API server may be away. With the Job, workers
are deleted anyway."""


@dataclass(frozen=True, slots=True)
class PriorityMix:
    """Priority classes by the numbers of workers, so that the first ones are the safest.

    Attributes:
        shares: class and number of workers, one after the other; 0: all others.
    """

    shares: tuple[tuple[str, int], ...] = ()

    def of(self, worker: int) -> str:
        """Return the class of a worker; empty: as its pod says."""
        before = 0
        for priority_class, count in self.shares:
            before += count
            if not count or worker < before:
                return priority_class
        return ""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The properties that the pods of one role have in common.

    Attributes:
        namespace: of all objects of the job.
        job: name of the job.
        job_uid: uid of the job's Job.
        owner: reference to the object with which Kubernetes deletes the pods.
        pod: a v1 Pod as JSON, complete but for name, labels of the instance, owner, arguments, and
            whose identity it gets.
        priorities: classes that replace the pod's own.
        role: of the pods.
    """

    namespace: str
    job: str
    job_uid: str
    owner: JsonObject
    pod: Mapping[str, object]
    priorities: PriorityMix = PriorityMix()
    role: str = objects.WORKER

    @property
    def selector(self) -> str:
        """The label selector of the pods of this role."""
        return f"{objects.LABEL_JOB_UID}={self.job_uid},{objects.LABEL_ROLE}={self.role}"

    def render(
        self, instance: InstanceId, worker: WorkerId, attempt: int, command: Sequence[str]
    ) -> JsonObject:
        """Return the pod of one instance."""
        pod: JsonObject = deepcopy(dict(self.pod))
        metadata = pod.setdefault("metadata", {})
        metadata["name"] = instance
        metadata["ownerReferences"] = [self.owner]
        metadata.setdefault("labels", {}).update(
            {
                **objects.labels(self.job, self.role),
                objects.LABEL_JOB_UID: self.job_uid,
                objects.LABEL_NUMBER: str(worker),
                objects.LABEL_ATTEMPT: str(attempt),
            }
        )
        if priority_class := self.priorities.of(worker):
            pod["spec"]["priorityClassName"] = priority_class
        for container in pod["spec"]["containers"]:
            if container["name"] == objects.CONTAINER:
                container["command"] = list(command)
                variables = container.setdefault("env", [])
                variables.append({"name": "EDL_INSTANCE", "value": instance})
                if all(each["name"] != "EDL_MASTER_WAIT_S" for each in variables):
                    variables.append({"name": "EDL_MASTER_WAIT_S", "value": str(_MASTER_WAIT_S)})
        for volume in pod["spec"].get("volumes", ()):
            if volume["name"] == objects.IDENTITY_VOLUME:
                volume["secret"] = objects.identity_source(self.job, self.role, worker)
        return pod
