"""What a cluster does to the pods of a job: each fault is done to a running ``CountingJob``.

``test_faults.py`` does them in a fixed order, and ``./dev chaos --platform kubernetes`` at random.
A fault returns when its cause is over; what the job makes of it may take longer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE
from cluster.layout import FIRST_SERVICE_ADDRESS
from counting_job import CountingJob
from counting_objects import WORKER_CPU_M

from edl_kubernetes.cluster import objects

Inject = Callable[[CountingJob, Random], str]
"""Injects a fault and returns its target; empty if there was no target."""

_FILLER = "filler"
_SPLIT_S = 5.0
"""How long two masters live beside each other."""


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
        name: of role and fault.
        weight: how often it happens by chance, in relation to the others.
        inject: does it.
    """

    name: str
    weight: int
    inject: Inject


# --- one pod -------------------------------------------------------------------------------


def _to_a_pod(role: str, act: Callable[[CountingJob, str], None]) -> Inject:
    def inject(job: CountingJob, random: Random) -> str:
        pods = sorted(pod["metadata"]["name"] for pod in _running(job, role))
        if not pods:
            return ""
        pod: str = random.choice(pods)
        act(job, pod)
        return pod

    return inject


def _running(job: CountingJob, role: str) -> list[dict[str, Any]]:
    """The pods of a role; the fault before may have taken them all, and others come."""
    if not job.has(role):
        return []
    job.wait(lambda: bool(job.pods(role)) or job.is_over, f"a pod of a {role}")
    return job.pods(role)


def delete(job: CountingJob, pod: str) -> None:
    job.kubectl("delete", "pod", pod, "--wait=false", "--ignore-not-found")


def force_delete(job: CountingJob, pod: str) -> None:
    job.kubectl(
        *("delete", "pod", pod, "--grace-period=0", "--force"),
        *("--wait=false", "--ignore-not-found"),
    )


def evict(job: CountingJob, pod: str) -> None:
    """Evict a pod, as a drain or a vertical autoscaler does."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": job.namespace},
    }
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    try:
        job.kubectl("create", f"--raw={path}", "-f-", stdin=json.dumps(eviction))
    except subprocess.CalledProcessError as error:
        if "NotFound" not in error.stderr:
            raise


def kill(job: CountingJob, pod: str) -> None:
    """Kill the processes of a pod, without a word to Kubernetes."""
    for process in _processes(pod):
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _processes(pod: str) -> list[int]:
    """Return the processes of a pod that live, whatever the cluster knows of the pod."""
    mark = f"{objects.POD_NAME}={pod}\0".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def kill_in_a_snapshot(job: CountingJob, pod: str) -> None:
    """Kill the master as soon as it begins to write the next snapshot."""
    folder = job.state / "snapshots"
    before = set(os.listdir(folder)) if folder.exists() else set()
    until = time.monotonic() + 60
    while time.monotonic() < until and not job.is_over:
        if folder.exists() and set(os.listdir(folder)) - before:
            break
        time.sleep(0.001)
    kill(job, pod)


# --- nodes ---------------------------------------------------------------------------------


def preempt_workers(job: CountingJob, random: Random) -> str:
    """Fill a node with a pod that goes before workers, for a while."""
    cluster, node = job.cluster, _a_node(job, objects.WORKER, random)
    if not node:
        return ""
    above = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": _FILLER},
        "value": 1_000_000,
    }
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "100000"],
        "resources": {"requests": {"cpu": _cpu_but_for_a_worker(cluster, node)}},
    }
    filler = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _FILLER, "namespace": job.namespace},
        "spec": {
            "priorityClassName": _FILLER,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(above))
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(filler))
    in_namespace = f"--namespace={job.namespace}"
    cluster.kubectl(
        "wait", "--for=condition=Ready", f"pod/{_FILLER}", in_namespace, "--timeout=600s"
    )
    cluster.kubectl("delete", f"pod/{_FILLER}", in_namespace)
    return node


def drain(job: CountingJob, random: Random) -> str:
    node = _a_node(job, objects.WORKER, random)
    if not node:
        return ""
    try:
        job.cluster.kubectl(
            *("drain", node, "--delete-emptydir-data", "--ignore-daemonsets"),
            *(f"--pod-selector={objects.LABEL_JOB}={job.name}", "--timeout=600s"),
        )
    finally:
        job.cluster.kubectl("uncordon", node)
    return node


def lose_node(job: CountingJob, random: Random) -> str:
    """The kubelet of a node stops for so long that all pods there are given up; they go on."""
    node = _a_node(job, objects.WORKER, random)
    if not node:
        return ""
    lost = {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER, node)}
    job.cluster.freeze_kubelet(node)
    try:
        # Its pods have a time of deletion when the cluster has given them up.
        job.wait(
            lambda: (
                not (lost & {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER, node)})
                or job.is_over
            ),
            f"the pods of {node} are given up",
        )
        before = job.trained
        job.wait(lambda: job.trained > before or job.is_over, "the job goes on elsewhere")
    finally:
        job.cluster.thaw_kubelet(node)
    return node


def two_masters(job: CountingJob, random: Random) -> str:
    """A master is cut off from the API server, and given up, while it goes on to train."""
    pods = _running(job, objects.MASTER)
    if not pods:
        return ""
    pod = pods[0]
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    term = job.term
    with (
        _dead_kubelet(job.cluster, node),
        _cut_off(job.cluster, node, pod["status"]["podIP"]),
    ):
        force_delete(job, name)
        job.wait(lambda: job.term > term or job.is_over, "the next master")
        time.sleep(_SPLIT_S)
    return name


def orphan_master(job: CountingJob, random: Random) -> str:
    """Remove a master's pod but not its process, which ends itself; the next master goes on."""
    pods = _running(job, objects.MASTER)
    if not pods:
        return ""
    name, node = pods[0]["metadata"]["name"], pods[0]["spec"]["nodeName"]
    assert _processes(name)
    with _dead_kubelet(job.cluster, node):
        force_delete(job, name)
        job.wait(lambda: not _processes(name), f"{name} ends by itself")
        before = job.trained
        job.wait(lambda: job.trained > before or job.is_over, "the next master goes on")
    return name


@contextmanager
def _dead_kubelet(cluster: Cluster, node: str) -> Iterator[None]:
    """Keep a node from ending processes; replacements start elsewhere."""
    cluster.kubectl("cordon", node)
    cluster.freeze_kubelet(node)
    try:
        yield
    finally:
        cluster.thaw_kubelet(node)
        cluster.kubectl("uncordon", node)


@contextmanager
def _cut_off(cluster: Cluster, node: str, address: str) -> Iterator[None]:
    """Drop what a pod sends to the API server, as a network does that is split."""
    rule = ("PREROUTING", "--source", address, "--destination", FIRST_SERVICE_ADDRESS, "-j", "DROP")
    sandbox = cluster.sandboxes[node]
    sandbox.run("iptables", "--table", "raw", "--insert", *rule)
    try:
        yield
    finally:
        sandbox.run("iptables", "--table", "raw", "--delete", *rule)


def _a_node(job: CountingJob, role: str, random: Random) -> str:
    """One on which pods of a role run; empty if none does."""
    nodes = sorted({pod["spec"]["nodeName"] for pod in _running(job, role)})
    return str(random.choice(nodes)) if nodes else ""


def _cpu_but_for_a_worker(cluster: Cluster, node: str) -> str:
    """All processors of a node, without the room that even one worker would need."""
    found = json.loads(cluster.kubectl("get", "node", node, "--output=json"))
    return f"{int(found['status']['allocatable']['cpu']) * 1000 - WORKER_CPU_M // 2}m"


# --- the control plane ---------------------------------------------------------------------


def stop_api_server(job: CountingJob, random: Random) -> str:
    """Stop the API server for up to a minute."""
    seconds = random.choice((5, 20, 60))
    api_server_outage(job.cluster, seconds)
    return f"{seconds} s"


def api_server_outage(cluster: Cluster, seconds: float) -> None:
    cluster.stop_api_server()
    try:
        time.sleep(seconds)
    finally:
        cluster.start_api_server()


def _pod_faults() -> Iterator[Fault]:
    acts: tuple[tuple[str, Callable[[CountingJob, str], None], int], ...] = (
        ("delete", delete, 2),
        ("force-delete", force_delete, 2),
        ("evict", evict, 1),
    )
    for role, factor in ((objects.WORKER, 3), (objects.MASTER, 1), (objects.SERVER, 1)):
        for name, act, weight in acts:
            yield Fault(f"{role} {name}", weight * factor, _to_a_pod(role, act))


FAULTS = (
    *_pod_faults(),
    Fault("master kill in a snapshot", 2, _to_a_pod(objects.MASTER, kill_in_a_snapshot)),
    Fault("workers pre-empt", 2, preempt_workers),
    Fault("node drain", 2, drain),
    Fault("node lose", 1, lose_node),
    Fault("master split off", 1, two_masters),
    Fault("master orphan", 1, orphan_master),
    Fault("api-server stop", 1, stop_api_server),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


class Schedule:
    """Draws each fault once, in a random order, and then faults by weight.

    A fault that found no target in one job is drawn once more in the next one.
    """

    def __init__(self, faults: Sequence[Fault], random: Random) -> None:
        self._faults = faults
        self._random = random
        self.to_do = random.sample(faults, len(faults))
        """Not done yet."""
        self._next: list[Fault] = []

    def begin_job(self) -> None:
        self._next = list(self.to_do)

    def draw(self) -> Fault:
        if self._next:
            return self._next.pop(0)
        (fault,) = self._random.choices(self._faults, [each.weight for each in self._faults])
        return fault

    def note_done(self, fault: Fault) -> None:
        if fault in self.to_do:
            self.to_do.remove(fault)
