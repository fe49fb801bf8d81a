"""A counting job on the test cluster, made of plain objects, and what may be done to it.

The pods run the interpreter and the sources of this machine through ``hostPath`` volumes: a test
of the master needs no image of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE
from google.protobuf import json_format
from safetensors.numpy import load_file

import recordio
from edl.adapters.kubernetes.job_identities import NewIdentities
from edl.core.cluster import identities
from edl_proto.kubernetes import objects
from edl_proto.v1 import job_pb2
from recordio import example

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
EPOCHS = 2
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


class CountingJob:
    """One job in a namespace of its own; all of its files are below ``folder``.

    Args:
        cluster: where it runs.
        namespace: a new one.
        folder: of this machine, as all nodes see it.
        records: how many.
        workers: how many.
        servers: of parameters; 0: the master holds them.
        held: train slowly until ``release`` is called.
        record_s: how long a record of a held job takes.
        training: more fields of the specification.
    """

    WORKER_CPU_M = 100
    """Thousandths of a processor that a worker asks for; no other pod of a job asks for any."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        folder: Path,
        *,
        records: int = 1000,
        workers: tuple[int, int] = (2, 2),
        servers: int = 0,
        held: bool = True,
        record_s: float = 0.02,
        worker_spec: dict[str, Any] | None = None,
        **training: Any,
    ) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self.records = records
        self.name = "counting"
        self._held = folder / "held"
        self._record_s = record_s
        self._workers, self._servers = workers[1], servers
        self._worker_spec = worker_spec or {}
        folder.mkdir(parents=True, exist_ok=True)
        if held:
            self._held.touch()
        self._make_zoo()
        self._make_data()
        cluster.kubectl("create", "namespace", namespace)
        self._create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "edl-master"}}
        )
        rbac = "rbac.authorization.k8s.io/v1"
        self._create(
            {"apiVersion": rbac, "kind": "Role", "metadata": {"name": "m"}, "rules": RULES}
        )
        self._create(
            {
                "apiVersion": rbac,
                "kind": "RoleBinding",
                "metadata": {"name": "m"},
                "roleRef": {"apiGroup": rbac.partition("/")[0], "kind": "Role", "name": "m"},
                "subjects": [{"kind": "ServiceAccount", "name": "edl-master"}],
            }
        )
        spec = self._spec(workers, servers, training)
        self._create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.object},
                "stringData": {objects.SPEC_KEY: json_format.MessageToJson(spec)},
            }
        )
        self._create_identities(workers[1], servers)
        self._create(self._service())
        self._create(self._job())

    @property
    def object(self) -> str:
        return objects.object_name(self.name)

    # --- objects ---------------------------------------------------------------------------

    def _spec(
        self, workers: tuple[int, int], servers: int, training: dict[str, Any]
    ) -> job_pb2.JobSpec:
        least, most = workers
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
                host="0.0.0.0", port=objects.MASTER_PORT, dashboard_port=objects.PAGE_PORT
            ),
            training=job_pb2.TrainingSpec(
                **{
                    "num_epochs": EPOCHS,
                    "update": job_pb2.ASYNC,
                    "local_steps": 1,
                    "shuffle": True,
                    "seed": 7,
                    "keep_checkpoints": 3,
                    "parameter_servers": servers,
                    **training,
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
        pod = self._helper(objects.WORKER, self._worker_spec)
        (container,) = pod["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": f"{self.WORKER_CPU_M}m"}}
        return pod

    def _helper(self, role: str, spec: dict[str, Any]) -> dict[str, Any]:
        """A pod that the master creates; it has the identity of number 0."""
        source = objects.identity_source(self.name, role, 0)
        return self._pod({"restartPolicy": "Never", **spec}, _identity_volume(source))

    def _create_identities(self, workers: int, servers: int) -> None:
        """As the client does: each pod mounts its own key alone."""
        new = NewIdentities(self.name)
        for secret in identities.secrets(self.name, workers, servers):
            content = new.content(secret)
            self._create(identities.render(secret, self.namespace, {}, content))

    def _pod(self, spec: dict[str, Any], *volumes: dict[str, Any]) -> dict[str, Any]:
        """A pod with this machine's programs; volumes have the place of their mount, too."""
        python = str(Path(sys.executable).resolve().parents[1])
        places = ["/usr", "/lib", "/lib64", "/etc/ssl", python, str(ROOT)]
        mounts = [{"name": f"p{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(places)]
        mounts.append({"name": "files", "mountPath": str(self.folder)})
        found = [{"name": f"p{i}", "hostPath": {"path": p}} for i, p in enumerate(places)]
        found.append({"name": "files", "hostPath": {"path": str(self.folder)}})
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
                {"name": "EDL_TEST_HELD", "value": str(self._held)},
                {"name": "EDL_TEST_RECORD_S", "value": str(self._record_s)},
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
        state.mkdir(exist_ok=True)
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
            "spec": {
                "backoffLimit": 1000000,
                "podReplacementPolicy": "TerminatingOrFailed",
                "template": {"metadata": pod["metadata"], "spec": pod["spec"]},
            },
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

    def _create(self, item: dict[str, Any]) -> None:
        self.kubectl("create", "-f-", stdin=json.dumps(item))

    def _make_zoo(self) -> None:
        zoo = self.folder / "zoo"
        zoo.mkdir()
        for source in ("model_zoo/counting.py", "tests/zoo/held.py"):
            shutil.copy(ROOT / source, zoo)

    def _make_data(self) -> None:
        data = self.folder / "data"
        data.mkdir()
        with recordio.Writer(str(data / "numbers.recordio")) as writer:
            for number in range(self.records):
                writer.write(example.encode({"number": np.array([number])}))

    # --- what is seen ----------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    @property
    def state(self) -> Path:
        """The job's directory."""
        return self.folder / "state" / self.name

    def pods(self, role: str, node: str = "") -> list[dict[str, Any]]:
        """The pods of a role that run and are not leaving; those of one node, if it is given."""
        labels = f"--selector={objects.LABEL_JOB}={self.name},{objects.LABEL_ROLE}={role}"
        items = json.loads(self.kubectl("get", "pods", labels, "--output=json"))["items"]
        return [
            item
            for item in items
            if item["status"].get("phase") == "Running"
            and "deletionTimestamp" not in item["metadata"]
            and node in ("", item["spec"]["nodeName"])
        ]

    def pod(self, role: str) -> str:
        """The name of one such pod, as soon as there is one."""
        self.wait(lambda: bool(self.pods(role)), f"a pod of a {role}")
        return str(self.pods(role)[-1]["metadata"]["name"])

    def status(self) -> dict[str, Any]:
        """As the master has written it last."""
        try:
            found: dict[str, Any] = json.loads((self.state / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    @property
    def trained(self) -> int:
        return int(self.status().get("records_trained", 0))

    @property
    def saved(self) -> int:
        return int(self.status().get("saved_version") or 0)

    @property
    def term(self) -> int:
        """Number of the newest master; 0: there is none yet."""
        try:
            lease = json.loads(self.kubectl("get", "lease", self.object, "--output=json"))
        except subprocess.CalledProcessError:
            return 0
        return int(lease["spec"]["leaseTransitions"])

    @property
    def is_over(self) -> bool:
        return self.status().get("state") in ("SUCCEEDED", "FAILED", "CANCELLED")

    def events(self) -> list[str]:
        """The messages of all events so far."""
        lines = (self.state / "events.jsonl").read_bytes().splitlines()
        return [json.loads(line)["message"] for line in lines if line.endswith(b"}")]

    def wait(self, met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not met():
            if time.monotonic() > deadline:
                pods = self.kubectl("get", "pods", "--output=wide")
                raise AssertionError(
                    f"{what}: not within {PATIENCE_S:.0f} s\n{pods}\n{self.status()}"
                )
            time.sleep(0.2)

    def wait_for_training(self, more: int = 40) -> None:
        """Wait until so many more records are trained, and a snapshot has been taken."""
        before = self.trained
        self.wait(lambda: self.trained >= before + more and self.saved > 0, "training")

    def wait_for_workers(self) -> None:
        """Wait until all pods that shall be there run, and all workers are at work."""

        def at_work() -> bool:
            status = self.status()
            states = [worker["state"] for worker in status.get("workers", ())]
            return (
                len(self.pods(objects.MASTER)) == 1
                and len(self.pods(objects.SERVER)) == self._servers
                and states.count("working") == self._workers
                and len(self.pods(objects.WORKER)) == self._workers
            )

        self.wait(at_work, "all workers are at work")

    def release(self) -> None:
        """Train as fast as can be from now on."""
        self._held.unlink()

    def condition(self, kind: str) -> bool:
        """Whether the Job has a condition, such as Complete or Failed."""
        job = json.loads(self.kubectl("get", "job", self.object, "--output=json"))
        return any(
            each["type"] == kind and each["status"] == "True"
            for each in job["status"].get("conditions", ())
        )

    def check(self) -> None:
        """Wait for the end: every record is in the model exactly once per epoch."""
        self.wait(lambda: self.condition("Complete") or self.condition("Failed"), "the end")
        assert self.condition("Complete"), self.record()
        (weights,) = load_file(self.folder / "model" / "parameters.safetensors").values()
        np.testing.assert_array_equal(weights.reshape(-1), np.full(self.records, EPOCHS))
        status = self.record()
        assert int(status["records_trained"]) == self.records * EPOCHS

    def record(self) -> dict[str, Any]:
        """The status in the job's ConfigMap."""
        found = json.loads(self.kubectl("get", "configmap", self.object, "--output=json"))
        status: dict[str, Any] = json.loads(found["data"][objects.STATUS_KEY])
        return status

    def close(self) -> None:
        self._held.unlink(missing_ok=True)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")


def _identity_volume(secret: dict[str, Any]) -> dict[str, Any]:
    """With the place of its mount."""
    return {
        "name": objects.IDENTITY_VOLUME,
        "secret": secret,
        "mountPath": objects.IDENTITY_DIRECTORY,
    }
