"""The pods of a job's master, workers and parameter servers.

They satisfy the pod security level ``restricted``, and have a read-only root file system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.plugins.submissions import Submission, kubernetes_value_types
from edl_kubernetes.cluster import objects
from edl_kubernetes.core import templates
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.local.process_environment import THREADS, order_sets
from edl_runtime.monitoring.log_lines import FORMAT_VARIABLE, JSON

USER = 1000
"""The user and group of all processes; the group owns the files of volumes."""

NODE_LOSS_S = 30
"""How long a pod stays on a node that is not ready; Kubernetes' default is five minutes."""

_UNREACHABLE_S = {objects.MASTER: 0}
"""How long a pod of a role stays on an unreachable node, where that is not ``NODE_LOSS_S``.

Kubernetes calls a node so when its kubelet has been silent for 50 s. A job whose master is lost has
then done nothing for that long, and one whose master lives loses seconds if it is replaced in vain.
"""

_MASTER_GRACE_S = 30
_WORKER_GRACE_S = 30
_TMP = "/tmp"
_SOURCES: Mapping[str, tuple[str, str]] = {
    "claim": ("persistentVolumeClaim", "claimName"),
    "secret": ("secret", "secretName"),
    "configmap": ("configMap", "name"),
}


@dataclass(frozen=True, slots=True)
class PodTemplates:
    """The templates that a user merges into pods, after ``templates.check``.

    Attributes:
        common: the template of all pods.
        workers: the template of workers, merged after the common one.
    """

    common: JsonObject = field(default_factory=dict)
    workers: JsonObject = field(default_factory=dict)


def master_pod(job: Submission, user_templates: PodTemplates) -> JsonObject:
    """Return the template of the Job's pods: metadata and spec."""
    name = objects.object_name(job.name)
    claim = state_claim(job)
    state = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    pod = _pod(job, objects.MASTER, job.master_resources)
    spec = pod["spec"]
    spec["serviceAccountName"] = master_account(job)
    spec["terminationGracePeriodSeconds"] = _MASTER_GRACE_S
    spec["volumes"] += [
        _identity_volume(
            {
                "secretName": objects.authority_secret(job.name),
                # Without the key, the pod must not start: it would be a job without identities.
                "items": [{"key": objects.AUTHORITY_KEY, "path": objects.AUTHORITY_KEY}],
                "defaultMode": objects.IDENTITY_MODE,
            }
        ),
        {"name": "edl-spec", "secret": {"secretName": name, "defaultMode": 0o440}},
        {"name": "edl-state", **state},
    ]
    (container,) = spec["containers"]
    container["command"] = list(objects.MASTER_COMMAND)
    container["volumeMounts"] += [
        {"name": "edl-spec", "mountPath": objects.SPEC_DIRECTORY, "readOnly": True},
        {"name": "edl-state", "mountPath": objects.STATE_DIRECTORY},
    ]
    container["ports"] = [
        {"name": "grpc", "containerPort": objects.MASTER_PORT},
        {"name": "parameters", "containerPort": objects.STREAM_PORT},
        {"name": "page", "containerPort": objects.PAGE_PORT},
    ]
    # The kubelet has no identity, so the master would not answer its calls.
    container["readinessProbe"] = {"tcpSocket": {"port": "grpc"}, "periodSeconds": 2}
    return _merge(pod, user_templates.common)


def worker_pod(job: Submission, user_templates: PodTemplates) -> JsonObject:
    """Return the pod of worker 0, to which the master adds name, number, command and owner."""
    pod = _pod_of_master(job, objects.WORKER, job.worker_resources)
    classes = worker_priorities(job)
    if len(classes) == 1:
        pod["spec"]["priorityClassName"] = classes[0].name
    (container,) = pod["spec"]["containers"]
    container["ports"] = [{"name": "replicas", "containerPort": objects.STREAM_PORT}]
    container["env"] += [
        _from_pod("EDL_RING_HOST", "status.podIP"),
        {"name": "EDL_RING_PORT", "value": str(objects.STREAM_PORT)},
    ]
    pod = _merge(pod, user_templates.common)
    return _complete(_limit_threads(_merge(pod, user_templates.workers)))


def server_pod(job: Submission, user_templates: PodTemplates) -> JsonObject:
    """Return the pod of parameter server 0, to which the master adds name, number and so on."""
    pod = _pod_of_master(job, objects.SERVER, job.server_resources)
    pod["spec"]["containers"][0]["ports"] = [
        {"name": "grpc", "containerPort": objects.MASTER_PORT},
        {"name": "parameters", "containerPort": objects.STREAM_PORT},
    ]
    return _complete(_merge(pod, user_templates.common))


def worker_priorities(job: Submission) -> tuple[kubernetes_value_types.PriorityClass, ...]:
    """Return the priority classes of workers; empty if pods have the cluster's default."""
    text = job.worker_priority_class
    return kubernetes_value_types.priorities(text) if text else ()


def master_account(job: Submission) -> str:
    """Return the service account of the master's pod."""
    return job.service_account or objects.MASTER_ACCOUNT


def state_claim(job: Submission) -> str:
    """Return the claim that keeps the state of a job; empty if the master's pod has it."""
    if not job.state_volume:
        return ""
    wanted = kubernetes_value_types.state_volume(job.state_volume)
    return wanted.claim or objects.object_name(job.name)


def metadata(job: Submission, role: str) -> JsonObject:
    """Return the labels and annotations of an object that belongs to one role."""
    result: JsonObject = {"labels": {**dict(job.labels), **objects.labels(job.name, role)}}
    if job.annotations:
        result["annotations"] = dict(job.annotations)
    return result


def _pod_of_master(job: Submission, role: str, resources: Sequence[tuple[str, str]]) -> JsonObject:
    """Return a pod of those that the master creates."""
    pod = _pod(job, role, resources)
    # By default, a cluster's autoscaler keeps nodes with pods that have no controller.
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations.setdefault("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")
    pod["spec"]["automountServiceAccountToken"] = False
    pod["spec"]["volumes"].append(_identity_volume(objects.identity_source(job.name, role, 0)))
    pod["spec"]["terminationGracePeriodSeconds"] = _WORKER_GRACE_S
    if job.worker_service_account:
        pod["spec"]["serviceAccountName"] = job.worker_service_account
    return pod


def _pod(job: Submission, role: str, resources: Sequence[tuple[str, str]]) -> JsonObject:
    own = {"name": objects.IDENTITY_VOLUME, "mountPath": objects.IDENTITY_DIRECTORY}
    mounts: list[JsonObject] = [
        {"name": "edl-tmp", "mountPath": _TMP},
        {**own, "readOnly": True},
    ]
    volumes: list[JsonObject] = [{"name": "edl-tmp", "emptyDir": {}}]
    for number, volume in enumerate(map(kubernetes_value_types.pod_volume, job.volumes)):
        kind, key = _SOURCES[volume.kind]
        volumes.append({"name": f"volume-{number}", kind: {key: volume.source}})
        mount: JsonObject = {"name": f"volume-{number}", "mountPath": volume.path}
        mounts.append({**mount, "readOnly": True} if volume.read_only else mount)
    container: JsonObject = {
        "name": objects.CONTAINER,
        "image": job.image,
        "env": _variables(job),
        "resources": _resources(resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if job.env_from:
        container["envFrom"] = [_variable_source(text) for text in job.env_from]
    spec: JsonObject = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": _tolerations(job, role),
        "containers": [container],
        "volumes": volumes,
    }
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    if job.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job.image_pull_secrets]
    if job.priority_class and role != objects.WORKER:
        spec["priorityClassName"] = job.priority_class
    return {"metadata": metadata(job, role), "spec": spec}


def _identity_volume(secret: JsonObject) -> JsonObject:
    return {"name": objects.IDENTITY_VOLUME, "secret": secret}


def _variables(job: Submission) -> list[JsonObject]:
    own = [
        # The user has no home directory, and only this folder can be written.
        *({"name": name, "value": _TMP} for name in ("HOME", "TMPDIR", "MPLCONFIGDIR")),
        {"name": "KERAS_HOME", "value": f"{_TMP}/.keras"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        *({"name": name, "value": value} for name, value in order_sets({}).items()),
        {"name": FORMAT_VARIABLE, "value": JSON},
        _from_pod(objects.POD_NAME, "metadata.name"),
        _from_pod(objects.POD_IP, "status.podIP"),
    ]
    users = [{"name": n, "value": v} for n, v in map(kubernetes_value_types.variable, job.env)]
    named = {item["name"] for item in users}
    return [item for item in own if item["name"] not in named] + users


def _from_pod(name: str, path: str) -> JsonObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _limit_threads(pod: JsonObject) -> JsonObject:
    """Give TensorFlow as many threads as the pod may use processors.

    More threads would use up the limit early in each scheduling period, and then all of them would
    wait for the next one. Without a limit, Kubernetes sets the variables to the number of
    processors of the node.
    """
    (container,) = (it for it in pod["spec"]["containers"] if it["name"] == objects.CONTAINER)
    if not any(item["name"] in THREADS for item in container["env"]):
        limit = {"resourceFieldRef": {"resource": "limits.cpu"}}
        container["env"] += [{"name": name, "valueFrom": limit} for name in THREADS]
    return pod


def _variable_source(text: str) -> JsonObject:
    kind, name = kubernetes_value_types.variable_source(text)
    return {"secretRef" if kind == "secret" else "configMapRef": {"name": name}}


def _resources(wanted: Sequence[tuple[str, str]]) -> JsonObject:
    """Return requests, and the same limits except for processor time.

    A limit of processor time would only waste what a node has to spare.
    """
    requests = {key: value for key, value in wanted if not key.startswith("limits.")}
    limits = {key: value for key, value in requests.items() if key != "cpu"}
    limits |= {key.removeprefix("limits."): value for key, value in wanted if key not in requests}
    return {"requests": requests, "limits": limits}


def _tolerations(job: Submission, role: str) -> list[JsonObject]:
    stays_s = {"not-ready": NODE_LOSS_S, "unreachable": _UNREACHABLE_S.get(role, NODE_LOSS_S)}
    node_loss = [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for taint, seconds in stays_s.items()
    ]
    return node_loss + [dict(kubernetes_value_types.toleration(text)) for text in job.tolerations]


def _merge(pod: JsonObject, template: JsonObject) -> JsonObject:
    merged: Any = templates.merge(pod, template)
    return dict(merged)


def _complete(pod: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", **pod}
