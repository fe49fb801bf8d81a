"""The objects of a job that exports the model of another one: copies of that one's.

Image, volumes, resources and templates of the user are in the pods already, and the new master
mounts the same claim: the state of the first job is a folder next to its own.
"""

from __future__ import annotations

import copy

from edl_kubernetes.core.manifest import QUEUE_LABEL, UNLIMITED
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.kubernetes import objects

_KUBERNETES_OWN = ("controller-uid", "job-name")
"""Labels that Kubernetes has given to the pods of a Job; without their prefix."""


def job_object(source: JsonObject, name: str) -> JsonObject:
    """The Job, suspended.

    Args:
        source: the Job of the first job, as the cluster has it.
        name: of the new job.
    """
    template = copy.deepcopy(source["spec"]["template"])
    template["metadata"] = {
        "labels": _labels(template["metadata"]["labels"], name),
        "annotations": dict(template["metadata"].get("annotations") or {}),
    }
    _rename_volumes(
        template,
        {
            "edl-spec": {"secretName": objects.object_name(name)},
            objects.IDENTITY_VOLUME: {"secretName": objects.authority_secret(name)},
        },
    )
    own = source["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": objects.object_name(name),
            "namespace": own["namespace"],
            "labels": _labels(own["labels"], name),
        },
        "spec": {
            "suspend": True,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": UNLIMITED,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": template,
        },
    }


def worker_pod(source: JsonObject, name: str) -> JsonObject:
    """The pod of a worker, as a specification has it."""
    pod = copy.deepcopy(source)
    pod["metadata"]["labels"] = _labels(pod["metadata"]["labels"], name)
    identity = objects.identity_source(name, objects.WORKER, 0)
    _rename_volumes(pod, {objects.IDENTITY_VOLUME: identity})
    return pod


def is_queued(job: JsonObject) -> bool:
    """Whether a queue releases the Job."""
    return QUEUE_LABEL in job["metadata"]["labels"]


def mounted_folders(pod: JsonObject) -> list[str]:
    """Where a pod sees volumes that others see, too."""
    shared = {each["name"] for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each}
    return [
        str(mount["mountPath"])
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["name"] in shared and not mount.get("readOnly")
    ]


def _labels(source: JsonObject, name: str) -> JsonObject:
    kept = {
        key: value for key, value in source.items() if key.rpartition("/")[2] not in _KUBERNETES_OWN
    }
    return {**kept, objects.LABEL_JOB: name}


def _rename_volumes(pod: JsonObject, secrets: JsonObject) -> None:
    for volume in pod["spec"]["volumes"]:
        if volume["name"] in secrets:
            volume["secret"].update(secrets[volume["name"]])
