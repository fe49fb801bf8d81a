"""Pods as a platform: the promises of every platform, on real nodes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import KubernetesApi
from edl_kubernetes.master.pod_template import PodTemplate
from edl_kubernetes.master.pods import KubernetesPods
from edl_master.core.events import InstancePending
from edl_master.core.identifiers import InstanceId
from edl_master.core.platform import Observation, Platform

_SUITE = Path(__file__).parents[2] / "packages/master/tests/conformance/platform_suite.py"


def _suite() -> Any:
    """The suite of all platforms, of the master's tests."""
    spec = importlib.util.spec_from_file_location("platform_suite", _SUITE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["platform_suite"] = module
    spec.loader.exec_module(module)
    return module


suite = _suite()
Behaviour = suite.Behaviour
WAIT = "echo up; while :; do sleep 0.05; done"
COMMANDS = {
    Behaviour.OBEDIENT: f"trap 'exit 0' TERM; {WAIT}",
    Behaviour.FRANK: f"trap 'exit 143' TERM; {WAIT}",
    Behaviour.STUBBORN: f"trap '' TERM; {WAIT}",
    Behaviour.NAIVE: WAIT,  # the first process of a container ignores what it does not handle
    Behaviour.CRASHING: "for i in $(seq 0 99); do echo line $i; done; exit 3",
    Behaviour.FINISHING: "echo done",
    Behaviour.MISSING: "true",
}


class Pods(KubernetesPods):
    """Keeps to itself what pods wait for: the suite is for platforms that wait for nothing."""

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        seen = super().observe(timeout_s)
        return tuple(each for each in seen if not isinstance(each, InstancePending))


class Harness:
    """Pods of one Job, in a namespace of their own."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.folder = folder
        self.platforms: list[KubernetesPods] = []
        cluster.kubectl("create", "namespace", namespace)
        # Suspended: it owns the pods, and makes none itself.
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "edl-suite"},
            "spec": {
                "suspend": True,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "master", "image": BUSYBOX_IMAGE}],
                    }
                },
            },
        }
        made = self.kubectl("create", "-f-", "--output=json", stdin=json.dumps(job))
        self.uid = json.loads(made)["metadata"]["uid"]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def platform(self, behaviour: Any) -> KubernetesPods:
        missing = behaviour == Behaviour.MISSING
        container = {
            "name": objects.CONTAINER,
            "image": "localhost/missing:1" if missing else BUSYBOX_IMAGE,
            "imagePullPolicy": "Never",
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        api = KubernetesApi.from_kubeconfig(str(self.cluster.layout.kubeconfig))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "edl-suite", "uid": self.uid}
        template = PodTemplate(self.namespace, "suite", self.uid, owner, pod)
        command = ["sh", "-c", COMMANDS[behaviour]]
        platform = Pods(api, template, lambda worker: command, self.folder)
        self.platforms.append(platform)
        return platform

    def successor(self, platform: Platform) -> Platform:
        # The former master dies without a word: it forgets its pods, and touches none again.
        assert isinstance(platform, KubernetesPods)
        with platform._changed:
            platform._pods.clear()
        platform.close(0)
        return self.platform(Behaviour.OBEDIENT)

    def is_up(self, instance: InstanceId) -> bool:
        try:
            return "up\n" in self.kubectl("logs", instance)
        except subprocess.CalledProcessError:  # the container is being made
            return False

    def is_alive(self, instance: InstanceId) -> bool:
        try:
            found = json.loads(self.kubectl("get", "pod", instance, "--output=json"))
        except subprocess.CalledProcessError:
            return False
        states = [one["state"] for one in found["status"].get("containerStatuses", ())]
        return any("running" in state for state in states)

    def take_away(self, instance: InstanceId) -> None:
        self.kubectl("delete", "pod", instance, "--grace-period=0", "--force")

    def ask_from_outside(self, instance: InstanceId) -> None:
        self.kubectl("delete", "pod", instance, "--grace-period=2", "--wait=false")

    def close(self) -> None:
        for platform in self.platforms:
            platform.close(0)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")


@pytest.fixture
def pods(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(cluster, f"suite-{abs(hash(request.node.name)):x}", tmp_path)
    yield harness
    harness.close()


class TestKubernetesPods(suite.PlatformSuite):
    """The promises of every platform."""

    @pytest.fixture
    def harness(self, pods: Harness) -> Harness:
        return pods
