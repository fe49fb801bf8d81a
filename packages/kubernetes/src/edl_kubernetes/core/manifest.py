"""All objects that the client creates for a job on Kubernetes; see docs/adr/0018-kubernetes.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edl.plugins.submissions import Submission, kubernetes_value_types
from edl_kubernetes.cluster import objects
from edl_kubernetes.core import identities
from edl_kubernetes.core.identities import IdentitySecret
from edl_kubernetes.core.pods import PodTemplates, master_pod, metadata
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.identity.page_key import PAGES

_UNLIMITED = 2**31 - 1
"""The number of failed pods of a Job: a disruption counts as a failure, but must not end a job."""

_MAX_MASTERS = 100_000
"""The number of masters that a job can have, one after another: Kubernetes' limit of indexes."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label of a Job that Kueue releases."""


def is_queued(job: Submission) -> bool:
    """Return whether a queue or a person releases the Job, rather than its submission."""
    return job.suspend or QUEUE_LABEL in dict(job.labels)


def job_object(
    job: Submission, namespace: str, user_templates: PodTemplates, *, suspended: bool
) -> JsonObject:
    """Return the Job, which owns everything else."""
    item = _object("batch/v1", "Job", job, namespace)
    if host := page_host(job, namespace):
        item["metadata"].setdefault("annotations", {})[objects.ANNOTATION_PAGE] = host
    item["spec"] = job_spec(master_pod(job, user_templates), suspended=suspended)
    if job.delete_after is not None:
        item["spec"]["ttlSecondsAfterFinished"] = round(job.delete_after)
    return item


def job_spec(template: JsonObject, *, suspended: bool) -> JsonObject:
    """Return the specification of a Job that runs one master at a time until one succeeds.

    Each master has an index of its own, so that the next one starts without delay: Kubernetes
    delays only further pods of the same index; see docs/adr/0033-masters-without-back-off.md.
    """
    return {
        "suspend": suspended,
        "completionMode": "Indexed",
        "completions": _MAX_MASTERS,
        "parallelism": 1,
        "backoffLimitPerIndex": 0,
        "backoffLimit": _UNLIMITED,
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": template,
    }


def owned_objects(
    job: Submission, namespace: str, spec_json: str, page: Mapping[str, str] = {}
) -> Sequence[JsonObject]:
    """Return the objects that the Job owns, in the order of creation, without owner references.

    Args:
        job: the submission.
        namespace: the namespace of the job.
        spec_json: the specification that the master reads.
        page: the keys to the job's page, as entries of the Secret.
    """
    master_metadata = metadata(job, objects.MASTER)
    items = [*secret_and_service(job.name, namespace, master_metadata, spec_json, page)]
    if job.state_volume and kubernetes_value_types.state_volume(job.state_volume).size:
        items.append(_claim(job, namespace))
    if job.ingress:
        items.append(_ingress(job, namespace))
    return items


def secret_and_service(
    job: str,
    namespace: str,
    labels_and_annotations: JsonObject,
    spec_json: str,
    page: Mapping[str, str] = {},
) -> tuple[JsonObject, JsonObject]:
    """Return the Secret with a job's specification, and the Service of its master.

    Args:
        job: the name of the job.
        namespace: the namespace of the job.
        labels_and_annotations: metadata of both objects.
        spec_json: the specification that the master reads.
        page: the keys to the job's page, as entries of the Secret.
    """
    common = {"name": objects.object_name(job), "namespace": namespace, **labels_and_annotations}
    secret: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": dict(common)}
    secret["type"] = "Opaque"
    secret["stringData"] = {objects.SPEC_KEY: spec_json, **page}
    service: JsonObject = {"apiVersion": "v1", "kind": "Service", "metadata": dict(common)}
    role = objects.labels(job, objects.MASTER)
    service["spec"] = {
        "selector": {key: role[key] for key in (objects.LABEL_JOB, objects.LABEL_ROLE)},
        "ports": [
            {"name": name, "port": port, "targetPort": name}
            for name, port in (
                ("grpc", objects.MASTER_PORT),
                ("parameters", objects.STREAM_PORT),
                ("page", objects.PAGE_PORT),
            )
        ],
    }
    return secret, service


def identity_objects(
    job: Submission,
    namespace: str,
    content: Callable[[IdentitySecret], Mapping[str, str] | None] = lambda secret: None,
) -> Sequence[JsonObject]:
    """Return the Secrets with the job's identities, which the Job owns, too.

    Args:
        job: the submission.
        namespace: the namespace of the job.
        content: returns the content of a Secret; None if it is only shown or checked.
    """
    found = identities.secrets(job.name, job.num_workers.max, job.parameter_servers)
    return [
        identities.render(secret, namespace, metadata(job, secret.role), content(secret))
        for secret in found
    ]


def manifest(
    job: Submission, namespace: str, spec_json: str, user_templates: PodTemplates
) -> JsonObject:
    """Return all objects as one List, as they are when the job runs; the Job is the last.

    Owner references are missing: they need the uid that the cluster gives to the Job. The content
    of the Secrets of identities and the key of the page are missing, too: they are made at
    submission, and never shown.
    """
    own = job_object(job, namespace, user_templates, suspended=is_queued(job))
    shown = identity_objects(job, namespace)
    items = [*owned_objects(job, namespace, spec_json), *shown, own]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _claim(job: Submission, namespace: str) -> JsonObject:
    wanted = kubernetes_value_types.state_volume(job.state_volume)
    claim = _object("v1", "PersistentVolumeClaim", job, namespace)
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": wanted.size}},
    }
    if wanted.storage_class:
        claim["spec"]["storageClassName"] = wanted.storage_class
    return claim


def page_host(job: Submission, namespace: str) -> str:
    """Return the public host name of the job's page; empty if it has none."""
    return job.ingress.format(name=job.name, namespace=namespace) if job.ingress else ""


def _ingress(job: Submission, namespace: str) -> JsonObject:
    """Return an Ingress of the page alone: the metrics on the same port need not be public."""
    backend = {
        "service": {"name": objects.object_name(job.name), "port": {"name": "page"}},
    }
    paths = [
        {"path": path, "pathType": kind, "backend": backend}
        for path, kind in (("/", "Exact"), (PAGES, "Prefix"))  # links with a key begin with /?
    ]
    ingress = _object("networking.k8s.io/v1", "Ingress", job, namespace)
    ingress["spec"] = {"rules": [{"host": page_host(job, namespace), "http": {"paths": paths}}]}
    if job.ingress_class:
        ingress["spec"]["ingressClassName"] = job.ingress_class
    return ingress


def _object(version: str, kind: str, job: Submission, namespace: str) -> JsonObject:
    named = {"name": objects.object_name(job.name), "namespace": namespace}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {**named, **metadata(job, objects.MASTER)},
    }
