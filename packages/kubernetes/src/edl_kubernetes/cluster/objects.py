"""Names, labels and ports of a job's objects on Kubernetes.

``docs/adr/0018-kubernetes.md`` has the whole design.
"""

from __future__ import annotations

from typing import Any

MASTER_PORT = 7070
"""gRPC of the master: tasks, job, and parameters; also of a parameter server."""

STREAM_PORT = 7071
"""Direct parameter connections of the master, and of a parameter server; of a worker, the
connections on which workers add up their gradients."""

PAGE_PORT = 7072
"""Status page and metrics of the master."""

MASTER, WORKER, SERVER = "master", "worker", "parameter-server"
"""Values of ``LABEL_ROLE``."""

LABEL_JOB = "app.kubernetes.io/instance"
"""Name of the job; on every object."""

LABEL_ROLE = "app.kubernetes.io/component"
"""Role of a pod."""

LABEL_JOB_UID = "edl/job-uid"
"""Uid of the Job: a later job of the same name has another one."""

LABEL_NUMBER = "edl/number"
"""Number of the worker or parameter server."""

LABEL_ATTEMPT = "edl/attempt"
"""Number of the worker's start."""

COMMON_LABELS = {
    "app.kubernetes.io/name": "edl",
    "app.kubernetes.io/part-of": "edl",
    "app.kubernetes.io/managed-by": "edl",
}
"""On every object."""

ANNOTATION_STOPPED = "edl/stopped"
"""On a Job that ``edl stop --now`` suspended, with the reason. Without it, a suspended Job waits
for a queue that will release it."""

ANNOTATION_EPOCHS = "edl/num-epochs"
"""On a Job that was resumed with more epochs than its specification has: their number."""

MASTER_ACCOUNT = "edl-master"
"""The service account of a master's pod, unless the user names another one."""

ANNOTATION_SUBMITTING = "edl/submitting"
"""On a Job whose other objects are still being created; tells one submission from another."""

ANNOTATION_CONTENT = "edl/content"
"""On a Secret that is shown without its content, with the reason."""

ANNOTATION_PAGE = "edl/page"
"""On a Job whose page is published, with the host name."""

MASTER_COMMAND = ("python3", "-P", "-m", "edl_kubernetes.master")
"""What the container of a master's pod runs; everything else is in the specification."""

POD_NAME, POD_IP = "EDL_POD_NAME", "EDL_POD_IP"
"""Variables that tell the processes of every pod its name and address."""

CONTAINER = "edl"
"""The container of a pod that runs edl; a template may add others."""

SPEC_KEY = "spec.json"
"""Key of the specification in the job's Secret."""

IDENTITY_VOLUME = "edl-identity"
"""The volume of every pod that has its own identity, and no other one."""

IDENTITY_DIRECTORY = "/etc/edl-identity"
"""Where a pod sees that volume: the master ``AUTHORITY_KEY``, all others ``IDENTITY_FILE``."""

IDENTITY_FILE = "identity.pem"
"""Key and certificate of a worker or parameter server."""

AUTHORITY_KEY = "authority.pem"
"""The job's authority: key of its Secret, and name of the file that the master's pod sees."""

IDENTITIES_PER_SECRET = 64
"""A Secret holds up to 1 MiB; so many identities are a tenth of that."""

IDENTITY_MODE = 0o400
"""Of these files; Kubernetes adds that the pod's group may read, since root owns them."""

PAGE_KEY, METRICS_TOKEN = "page-key", "metrics-token"
"""Keys of the job's Secret: what makes links to its page, and what a scraper may present."""

STATUS_KEY, EVENTS_KEY, LOGS_KEY = "status.json", "events.jsonl", "logs.json"
"""Keys of the record, the job's ConfigMap; ``logs.json`` maps processes to the ends of logs."""

TIMELINE_KEY = "timeline.jsonl"
"""Another one: the last lines of the timeline."""

SPEC_DIRECTORY = "/etc/edl"
"""Where the master's pod sees the Secret."""

STATE_DIRECTORY = "/var/lib/edl"
"""Where the master's pod sees the volume; the job's directory is below, by the job's name."""


def object_name(job: str) -> str:
    """Return the name of the job's Job, Secret, Service, claim, Lease and ConfigMap."""
    return f"edl-{job}"


def authority_secret(job: str) -> str:
    """Return the name of the Secret with the job's authority. No job's name has a dot."""
    return f"{object_name(job)}.authority"


def identity_secret(job: str, role: str, number: int) -> str:
    """Return the name of the Secret with the identity of a worker or parameter server."""
    return f"{object_name(job)}.{role}s-{number // IDENTITIES_PER_SECRET}"


def identity_key(number: int) -> str:
    """Return the key of an identity in its Secret."""
    return f"{number}.pem"


def identity_source(job: str, role: str, number: int) -> dict[str, Any]:
    """Return the source of ``IDENTITY_VOLUME`` for one process: its own key alone."""
    return {
        "secretName": identity_secret(job, role, number),
        "items": [{"key": identity_key(number), "path": IDENTITY_FILE}],
        "defaultMode": IDENTITY_MODE,
    }


def service_host(job: str, namespace: str) -> str:
    """Return the host at which the pods of a job reach its current master."""
    return f"{object_name(job)}.{namespace}.svc"


def labels(job: str, role: str) -> dict[str, str]:
    """Return the labels of an object that belongs to one role of a job."""
    return {**COMMON_LABELS, LABEL_JOB: job, LABEL_ROLE: role}


def pod_name(job: str, role: str, number: int, suffix: str) -> str:
    """Return the name of a worker's or parameter server's pod.

    Args:
        suffix: makes the name unique among all pods of the job: the attempt and random letters.
    """
    kind = "server" if role == SERVER else role
    return f"edl-{job}-{kind}-{number}-{suffix}"
