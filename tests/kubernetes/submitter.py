"""A user who submits jobs from this machine, in a namespace of its own.

The masters are fake: ``fake_pod.py`` runs in their pods.
"""

from __future__ import annotations

import os
import secrets
import shlex
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import namespaces
import pytest
import yaml
from cluster.cluster import Cluster

from edl.__main__ import run
from edl.core.options.kubernetes import ClusterChoice
from edl_kubernetes.backend import KubernetesJobBackend, kubernetes_jobs
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects

ROOT = Path(__file__).parents[2]
MODEL = """
model = object()

def dataset_fn(dataset, mode): pass
def loss(labels, predictions): pass
def optimizer(): pass
"""
RULES = [
    {
        "apiGroups": ["", "batch", "coordination.k8s.io"],
        "resources": ["pods", "pods/log", "configmaps", "jobs", "leases"],
        "verbs": ["get", "list", "watch", "create", "delete", "update", "patch"],
    }
]
KINDS = {
    "job.batch": "/apis/batch/v1",
    **dict.fromkeys(("pod", "service", "secret", "persistentvolumeclaim", "configmap"), "/api/v1"),
}
"""The kinds of objects that jobs have, and where each is found."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Submitter:
    """Runs commands in this process, for a namespace of its own."""

    def __init__(
        self,
        cluster: Cluster,
        image: str,
        namespace: str,
        place: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.place = place
        self.image = image
        self._capsys = capsys
        (place / "zoo").mkdir()
        (place / "zoo" / "mine.py").write_text(MODEL)
        cluster.create(namespace, namespaces.make_objects(namespace, RULES))
        cluster.wait_for_account(namespace)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def edl(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = run(arguments)
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def train(self, *more: str, name: str = "digits") -> Done:
        return self.edl(*self.arguments(*more, name=name))

    def arguments(self, *more: str, name: str = "digits") -> tuple[str, ...]:
        return (
            *("train", "--model-zoo", str(self.place / "zoo"), "--model-def", "mine"),
            *("--data", "s3://bucket/x", "--output", "s3://bucket/out", "--name", name),
            *("--platform", "kubernetes", "--namespace", self.namespace),
            *("--image", self.image, *more),
        )

    def list_objects(self) -> list[str]:
        """List the objects of jobs that exist."""
        return [
            f"{kind}/{item['metadata']['name']}"
            for kind in KINDS
            for item in self._list(kind)
            if item["metadata"]["name"].startswith("edl-")
        ]

    def has_pods(self) -> bool:
        return bool(self._list("pod"))

    def _list(self, kind: str) -> list[dict[str, Any]]:
        path = f"{KINDS[kind]}/namespaces/{self.namespace}/{kind.partition('.')[0]}s"
        return self.cluster.api.list(path).items

    def backend(self) -> KubernetesJobBackend:
        choice = ClusterChoice(namespace=self.namespace)
        return kubernetes_jobs(ChosenCluster(choice, os.environ))

    def play(self, part: str) -> str:
        """A pod template whose ``python3`` runs the fake job."""
        script = ROOT / "tests" / "kubernetes" / "fake_pod.py"
        commands = self.place / "bin"
        commands.mkdir(exist_ok=True)
        python = commands / "python3"
        command = shlex.join([sys.executable, "-P", str(script)])
        python.write_text(f"#!/bin/sh\nexec {command}\n")
        python.chmod(0o755)
        base = str(Path(sys.executable).resolve().parents[1])
        paths = ["/usr", "/lib", "/lib64", base, sys.prefix, str(ROOT), str(commands)]
        paths = [path for path in dict.fromkeys(paths) if base != "/usr" or path != base]
        kept = [path for path in dict.fromkeys(["/usr", *paths]) if Path(path).exists()]
        names = {path: f"host-{number}" for number, path in enumerate(kept)}
        container = {
            "name": objects.CONTAINER,
            "env": [
                {"name": "PATH", "value": f"{commands}:/usr/bin:/bin"},
                {"name": "SCENARIO", "value": part},
            ],
            "volumeMounts": [
                {"name": name, "mountPath": path, "readOnly": True} for path, name in names.items()
            ],
        }
        volumes = [{"name": name, "hostPath": {"path": path}} for path, name in names.items()]
        return self.template({"spec": {"containers": [container], "volumes": volumes}})

    def foreign(self) -> str:
        """A pod template whose ``python3`` is a program for another processor."""
        commands = self.place / "foreign"
        commands.mkdir()
        (commands / "python3").write_bytes(
            struct.pack(
                *("<4s5B7x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 0),
                *(2, 183, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0),  # of AArch64
            )
        )
        (commands / "python3").chmod(0o755)
        container = {
            "name": objects.CONTAINER,
            "env": [{"name": "PATH", "value": str(commands)}],
            "volumeMounts": [{"name": "foreign", "mountPath": str(commands), "readOnly": True}],
        }
        volumes = [{"name": "foreign", "hostPath": {"path": str(commands)}}]
        return self.template({"spec": {"containers": [container], "volumes": volumes}})

    def template(self, content: Any) -> str:
        path = self.place / f"{secrets.token_hex(4)}.yaml"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def kubeconfig(self, server: str = "", token: str = "") -> str:
        """A copy of the cluster's with another address, or other credentials."""
        config = yaml.safe_load(self.cluster.layout.kubeconfig.read_text())
        if server:
            config["clusters"][0]["cluster"] = {"server": server}
        if token:
            config["users"][0]["user"] = {"token": token}
        path = self.place / f"{secrets.token_hex(4)}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)


def eventually(condition: Callable[[], Any], what: str, timeout: float = 300) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.2)
    return value
