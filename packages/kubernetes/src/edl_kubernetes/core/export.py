"""The objects of a job that exports the model of another job: changed copies of its objects.

The copied pods have the user's image, volumes, resources and templates already. The new master
mounts the same claim, in which the state of the other job is a folder next to its own.
"""

from __future__ import annotations

import copy

from edl_kubernetes.cluster import objects
from edl_kubernetes.core.manifest import QUEUE_LABEL, job_spec
from edl_kubernetes.core.templates import JsonObject

_KUBERNETES_LABELS = ("controller-uid", "job-name")
"""Labels that Kubernetes adds to the pods of a Job; without their prefix."""


def job_object(source: JsonObject, name: str) -> JsonObject:
    """Return the suspended Job of the export.

    Args:
        source: the Job of the other job, as the cluster has it.
        name: the name of the new job.
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
    spec = job_spec(template, suspended=True)
    if (ttl := source["spec"].get("ttlSecondsAfterFinished")) is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": objects.object_name(name),
            "namespace": own["namespace"],
            "labels": _labels(own["labels"], name),
        },
        "spec": spec,
    }


def worker_pod(source: JsonObject, name: str) -> JsonObject:
    """Return the pod of a worker, as it is in a specification."""
    pod = copy.deepcopy(source)
    pod["metadata"]["labels"] = _labels(pod["metadata"]["labels"], name)
    identity = objects.identity_source(name, objects.WORKER, 0)
    _rename_volumes(pod, {objects.IDENTITY_VOLUME: identity})
    return pod


def is_queued(job: JsonObject) -> bool:
    """Return whether a queue releases the Job."""
    return QUEUE_LABEL in job["metadata"]["labels"]


def mounted_folders(pod: JsonObject) -> list[str]:
    """Return the folders in which a pod can write to volumes that other pods can mount."""
    shared = {each["name"] for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each}
    return [
        str(mount["mountPath"])
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["name"] in shared and not mount.get("readOnly")
    ]


def _labels(source: JsonObject, name: str) -> JsonObject:
    kept = {
        key: value
        for key, value in source.items()
        if key.rpartition("/")[2] not in _KUBERNETES_LABELS
    }
    return {**kept, objects.LABEL_JOB: name}


def _rename_volumes(pod: JsonObject, secrets: JsonObject) -> None:
    for volume in pod["spec"]["volumes"]:
        if volume["name"] in secrets:
            volume["secret"].update(secrets[volume["name"]])
