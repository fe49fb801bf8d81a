"""Pods as a platform: the promises of every platform, on real nodes."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
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
WAIT = "echo up; sleep 100000 & while :; do wait; done"
"""A shell that sleeps would see a signal only afterwards."""
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
    """Pods of one Job."""

    def __init__(self, cluster: Cluster, namespace: str, job: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.job = job
        self.folder = folder
        self.platforms: list[KubernetesPods] = []
        # Suspended: it owns the pods, and makes none itself.
        item = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": objects.object_name(job)},
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
        made = cluster.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", item)
        self.uid = made["metadata"]["uid"]

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
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [container],
            },
        }
        api = KubernetesApi.from_kubeconfig(str(self.cluster.layout.kubeconfig))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": self.uid}
        owner["name"] = objects.object_name(self.job)
        template = PodTemplate(self.namespace, self.job, self.uid, owner, pod)
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
            return "up\n" in self.cluster.api.text(f"{self._pod(instance)}/log", {})
        except (ApiError, ApiUnavailable):  # the container is being made
            return False

    def is_alive(self, instance: InstanceId) -> bool:
        try:
            found = self.cluster.api.get(self._pod(instance))
        except ApiError:
            return False
        states = [one["state"] for one in found["status"].get("containerStatuses", ())]
        return any("running" in state for state in states)

    def take_away(self, instance: InstanceId) -> None:
        self.cluster.api.delete(self._pod(instance), 0)

    def ask_from_outside(self, instance: InstanceId) -> None:
        self.cluster.api.delete(self._pod(instance), 2)

    def _pod(self, instance: InstanceId) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{instance}"

    def close(self) -> None:
        for platform in self.platforms:
            platform.close(0)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """One for all tests: its end costs the API server more than a test's pods do."""
    name = f"suite-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def pods(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(cluster, namespace, f"job-{secrets.token_hex(4)}", tmp_path)
    yield harness
    harness.close()


class TestKubernetesPods(suite.PlatformSuite):
    """The promises of every platform."""

    @pytest.fixture
    def harness(self, pods: Harness) -> Harness:
        return pods
