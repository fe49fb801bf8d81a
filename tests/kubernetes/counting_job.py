"""A counting job on the test cluster, made of plain objects, and what is seen of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster.cluster import Cluster
from counting_objects import EPOCHS, CountingObjects
from safetensors.numpy import load_file

import recordio
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError
from edl_testing import fork_server
from recordio import example

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
POD_MODULE = "edl_kubernetes.master.pod"
KEEPS_NOTHING = "PYTHONDONTWRITEBYTECODE"


def compile_programs(cluster: Cluster) -> Path:
    """Have Python keep what it compiles of all programs of jobs, since pods may not write that.

    Otherwise each pod compiles all libraries: TensorFlow then takes ten seconds more to start.

    Returns:
        A folder where pods keep the loops that they compile themselves.
    """
    loops = cluster.layout.root / "compiled"
    if not loops.exists():
        imports = (*fork_server.WORKER_IMPORTS, *fork_server.MASTER_IMPORTS, POD_MODULE)
        modules = ", ".join(each.partition(":")[0] for each in imports)
        environ = {name: value for name, value in os.environ.items() if name != KEEPS_NOTHING}
        subprocess.run((sys.executable, "-c", f"import {modules}"), check=True, env=environ)
        loops.mkdir()
    return loops


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
        self._workers, self._servers = workers[1], servers
        folder.mkdir(parents=True, exist_ok=True)
        if held:
            self._held.touch()
        self._make_zoo()
        self._make_data()
        (folder / "state").mkdir(exist_ok=True)
        made = CountingObjects(
            *(namespace, folder, compile_programs(cluster), self.name, self._held),
            *(records, record_s, workers, servers, worker_spec or {}, training),
        )
        cluster.create(namespace, made)

    @property
    def object(self) -> str:
        return objects.object_name(self.name)

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

    def has(self, role: str) -> bool:
        """Whether it shall have pods of a role."""
        return role != objects.SERVER or self._servers > 0

    # --- what is seen ----------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def _get(self, kind: str, group: str = "/api/v1") -> dict[str, Any]:
        """Return the object of a kind that has the job's name."""
        return dict(self.cluster.api.get(f"{self._path(kind, group)}/{self.object}"))

    def find(self, kind: str, group: str = "/api/v1", labels: str = "") -> list[dict[str, Any]]:
        """List the job's objects of a kind."""
        selector = f"{objects.LABEL_JOB}={self.name}{labels}"
        return self.cluster.api.list(self._path(kind, group), selector).items

    def _path(self, kind: str, group: str = "/api/v1") -> str:
        return f"{group}/namespaces/{self.namespace}/{kind}"

    @property
    def state(self) -> Path:
        """The job's directory."""
        return self.folder / "state" / self.name

    def pods(self, role: str, node: str = "") -> list[dict[str, Any]]:
        """The pods of a role that run and are not leaving; those of one node, if it is given."""
        return [
            item
            for item in self.find("pods", labels=f",{objects.LABEL_ROLE}={role}")
            if item["status"].get("phase") == "Running"
            and "deletionTimestamp" not in item["metadata"]
            and node in ("", item["spec"]["nodeName"])
        ]

    def pod(self, role: str) -> str:
        """The name of one such pod, as soon as there is one."""
        self.wait(lambda: bool(self.pods(role)), f"a pod of a {role}")
        return str(self.pods(role)[-1]["metadata"]["name"])

    def status(self) -> dict[str, Any]:
        """Return the status that the master has written last."""
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
            lease = self._get("leases", "/apis/coordination.k8s.io/v1")
        except ApiError:
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
                states.count("working") == self._workers
                and len(self.pods(objects.WORKER)) == self._workers
                and len(self.pods(objects.MASTER)) == 1
                and len(self.pods(objects.SERVER)) == self._servers
            )

        self.wait(at_work, "all workers are at work")

    def release(self) -> None:
        """Train as fast as can be from now on."""
        self._held.unlink()

    def condition(self, kind: str) -> bool:
        """Whether the Job has a condition, such as Complete or Failed."""
        return any(
            each["type"] == kind and each["status"] == "True"
            for each in self.batch_job()["status"].get("conditions", ())
        )

    def batch_job(self) -> dict[str, Any]:
        """Return the Job."""
        return self._get("jobs", "/apis/batch/v1")

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
        data = self._get("configmaps")["data"]
        status: dict[str, Any] = json.loads(data[objects.STATUS_KEY])
        return status

    def close(self) -> None:
        self._held.unlink(missing_ok=True)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")
