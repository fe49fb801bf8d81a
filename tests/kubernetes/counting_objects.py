"""The objects of a counting job, as plain values.

The pods run the interpreter and the sources of this machine through ``hostPath`` volumes: a test
of the master needs no image of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import namespaces
from cluster.images import BUSYBOX_IMAGE
from google.protobuf import json_format

from edl_kubernetes.cluster import objects
from edl_kubernetes.core import identities, manifest
from edl_kubernetes.job_identities import NewIdentities
from edl_proto.v1 import job_pb2

ROOT = Path(__file__).parents[2]
EPOCHS = 2
WORKER_CPU_M = 100
"""Thousandths of a processor that a worker asks for; no other pod of a job asks for any."""

RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "patch"]},
]
"""What docs/adr/0018-kubernetes.md says that a master needs, and nothing else."""


@dataclass(frozen=True)
class CountingObjects:
    """The objects of one job; ``CountingJob`` says what the fields mean."""

    namespace: str
    folder: Path
    compiled: Path
    name: str
    held: Path
    records: int
    record_s: float
    workers: tuple[int, int]
    servers: int
    worker_spec: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects in the order of their creation."""
        yield from namespaces.make_objects(self.namespace, RULES)
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.object},
            "stringData": {objects.SPEC_KEY: json_format.MessageToJson(self._spec())},
        }
        # As the client does: each pod mounts its own key alone.
        new = NewIdentities(self.name)
        for secret in identities.secrets(self.name, self.workers[1], self.servers):
            yield identities.render(secret, self.namespace, {}, new.content(secret))
        yield self._service()
        yield self._job()

    @property
    def object(self) -> str:
        return objects.object_name(self.name)

    def _spec(self) -> job_pb2.JobSpec:
        least, most = self.workers
        return job_pb2.JobSpec(
            name=self.name,
            type=job_pb2.TRAIN,
            platform="kubernetes",
            model=job_pb2.ModelSpec(
                model_zoo=str(self.folder / "zoo"),
                model_def="counting",
                params=f"size={self.records}",
                dataset_fn="held.dataset_fn",
            ),
            data=[str(self.folder / "data")],
            output=str(self.folder / "model"),
            minibatch_size=16,
            records_per_task=100,
            snapshot_interval_s=1,
            worker_grace_s=10,
            workers=job_pb2.WorkersSpec(min=least, max=most),
            failures=job_pb2.FailureSpec(task_attempts=3, worker_crashes=3),
            serving=job_pb2.ServingSpec(
                host="0.0.0.0",
                port=objects.MASTER_PORT,
                dashboard_port=objects.PAGE_PORT,
                metrics_auth="none",
            ),
            training=job_pb2.TrainingSpec(
                **{
                    "num_epochs": EPOCHS,
                    "update": job_pb2.ASYNC,
                    "local_steps": 1,
                    "shuffle": True,
                    "seed": 7,
                    "keep_checkpoints": 3,
                    "parameter_servers": self.servers,
                    **self.training,
                }
            ),
            tensorboard_dir=str(self.folder / "tensorboard"),
            kubernetes=job_pb2.KubernetesSpec(
                namespace=self.namespace,
                worker_pod=json.dumps(self._worker_pod()),
                server_pod=json.dumps(self._helper(objects.SERVER, {})),
                state="volume",
            ),
        )

    def _worker_pod(self) -> dict[str, Any]:
        pod = self._helper(objects.WORKER, self.worker_spec)
        (container,) = pod["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": f"{WORKER_CPU_M}m"}}
        return pod

    def _helper(self, role: str, spec: dict[str, Any]) -> dict[str, Any]:
        """A pod that the master creates; it has the identity of number 0."""
        source = objects.identity_source(self.name, role, 0)
        return self._pod({"restartPolicy": "Never", **spec}, _identity_volume(source))

    def _pod(self, spec: dict[str, Any], *volumes: dict[str, Any]) -> dict[str, Any]:
        """A pod with this machine's programs; volumes have the place of their mount, too."""
        python = str(Path(sys.executable).resolve().parents[1])
        places = ["/usr", "/lib", "/lib64", "/etc/ssl", python, str(ROOT)]
        mounts = [{"name": f"p{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(places)]
        mounts.append({"name": "files", "mountPath": str(self.folder)})
        mounts.append({"name": "compiled", "mountPath": str(self.compiled)})
        found = [{"name": f"p{i}", "hostPath": {"path": p}} for i, p in enumerate(places)]
        found.append({"name": "files", "hostPath": {"path": str(self.folder)}})
        found.append({"name": "compiled", "hostPath": {"path": str(self.compiled)}})
        for each in volumes:
            mounts.append({"name": each["name"], "mountPath": each.pop("mountPath")})
            found.append(each)
        container = {
            "name": objects.CONTAINER,
            "image": BUSYBOX_IMAGE,
            "imagePullPolicy": "Never",
            "volumeMounts": mounts,
            "env": [
                {"name": "PATH", "value": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
                {"name": "EDL_TEST_HELD", "value": str(self.held)},
                {"name": "EDL_TEST_RECORD_S", "value": str(self.record_s)},
                {"name": "NUMBA_CACHE_DIR", "value": str(self.compiled)},
                {"name": "PYTHONUNBUFFERED", "value": "1"},
                {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "3"},
                *(
                    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                    for name, path in (
                        (objects.POD_NAME, "metadata.name"),
                        (objects.POD_IP, "status.podIP"),
                    )
                ),
            ],
        }
        # A node that is lost is given up soon.
        soon = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        kinds = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        tolerations = [{"key": kind, **soon} for kind in kinds]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {},
            "spec": {
                "containers": [container],
                "volumes": found,
                "tolerations": tolerations,
                **spec,
            },
        }

    def _job(self) -> dict[str, Any]:
        state = self.folder / "state"
        pod = self._pod(
            {
                "restartPolicy": "Never",
                "serviceAccountName": "edl-master",
                "terminationGracePeriodSeconds": 30,
            },
            {
                "name": "spec",
                "secret": {"secretName": self.object},
                "mountPath": objects.SPEC_DIRECTORY,
            },
            {
                "name": "state",
                "hostPath": {"path": str(state)},
                "mountPath": objects.STATE_DIRECTORY,
            },
            _identity_volume(
                {
                    "secretName": objects.authority_secret(self.name),
                    "defaultMode": objects.IDENTITY_MODE,
                }
            ),
        )
        pod["spec"]["containers"][0]["command"] = list(objects.MASTER_COMMAND)
        pod["metadata"] = {"labels": objects.labels(self.name, objects.MASTER)}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.object},
            "spec": manifest.job_spec(
                {"metadata": pod["metadata"], "spec": pod["spec"]}, suspended=False
            ),
        }

    def _service(self) -> dict[str, Any]:
        ports = {
            "grpc": objects.MASTER_PORT,
            "streams": objects.STREAM_PORT,
            "page": objects.PAGE_PORT,
        }
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.object},
            "spec": {
                "selector": objects.labels(self.name, objects.MASTER),
                "ports": [{"name": name, "port": port} for name, port in ports.items()],
            },
        }


def _identity_volume(secret: dict[str, Any]) -> dict[str, Any]:
    """Return a volume together with the path of its mount."""
    return {
        "name": objects.IDENTITY_VOLUME,
        "secret": secret,
        "mountPath": objects.IDENTITY_DIRECTORY,
    }
