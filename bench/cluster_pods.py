"""A thousand workers as pods: how long, how many requests, and what it costs the master.

The pods are on simulated nodes of the test cluster, which has a real API server, and the platform
adapter of the master is alone in a process, as ``python -m bench.cluster_pods``. ``EDL_BENCH_PODS``
is the number of pods. Peers are limits or the state before: lower is better but where a ratio says
otherwise. Needs root and what ``./dev cluster`` needs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Measure
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import KubernetesApi
from edl_kubernetes.master.pod_template import PodTemplate
from edl_kubernetes.master.pods import KubernetesPods
from edl_master.core.events import InstanceExited
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import InstanceStarted

PODS = int(os.environ.get("EDL_BENCH_PODS", "1000"))
NODES = 20
CREATED_PER_S = 10.0
"""The limit that docs/adr/0018-kubernetes.md names."""
DEADLINE_S = 900.0


def measures() -> list[dict[str, Any]]:
    """Start a cluster, and have another process do the work, so that its memory is its own."""
    from tests.kubernetes.cluster import requirements
    from tests.kubernetes.cluster.cluster import Cluster

    if missing := requirements.missing():
        raise SystemExit(f"bench cluster_pods needs: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        cluster = Cluster.start(Path(folder) / "cluster")
        try:
            cluster.add_simulated_nodes(NODES)
            done = subprocess.run(
                (
                    *(sys.executable, "-m", "bench.cluster_pods"),
                    *(str(cluster.layout.kubeconfig), str(cluster.binaries / "kubectl")),
                ),
                cwd=ROOT,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            cluster.end()
    return [_measure(*row).to_json() for row in json.loads(done.stdout)]


def _measure(name: str, value: float, unit: str, peer: str, peer_value: float) -> Measure:
    ratio = value / peer_value if peer_value else 0.0
    return Measure(name, value, unit, peer, peer_value, ratio, None, [(value, peer_value)])


class Crowd:
    """The pods of one job, and what the master's adapter says about them."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self.requests = 0
        api = KubernetesApi.from_kubeconfig(kubeconfig)
        self.api = api
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "edl-crowd"}}
        made = api.create("/api/v1/namespaces/default/configmaps", owner)
        self._count(api)
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": _pod_spec()}
        uid = made["metadata"]["uid"]
        self.template = _Template("default", "crowd", ("edl-crowd", uid), pod)
        self.platform = KubernetesPods(api, self.template, lambda *_: ["true"], folder)
        self.attempt = 0

    def start(self) -> float:
        """Ask for all pods; the seconds until all run."""
        began = time.monotonic()
        self.attempt += 1
        for number in range(PODS):
            self.platform.start(WorkerId(number), self.attempt)
        self._wait(InstanceStarted)
        return time.monotonic() - began

    def lose(self, *kubectl: str) -> float:
        """Have all pods deleted at once; the seconds until the master knows of all."""
        began = time.monotonic()
        selector = f"--selector={objects.LABEL_ROLE}={objects.WORKER}"
        with subprocess.Popen(
            (*kubectl, "delete", "pods", selector, "--grace-period=0", "--force", "--wait=false"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ):
            self._wait(InstanceExited)
        return time.monotonic() - began

    def _wait(self, kind: type) -> None:
        missing, deadline = set(range(PODS)), time.monotonic() + DEADLINE_S
        while missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} of {PODS} without {kind.__name__}")
            for observation in self.platform.observe(1.0):
                if isinstance(observation, kind):
                    missing.discard(observation.worker)

    def _count(self, api: KubernetesApi) -> None:
        """Count what goes to the API server, whichever call sends it."""
        send = api._client.call_api

        def count(*arguments: Any, **options: Any) -> Any:
            self.requests += 1
            return send(*arguments, **options)

        api._client.call_api = count


class _Template(PodTemplate):
    """Pods that no Job owns: kwok lets those of Jobs end at once."""

    def render(self, *arguments: Any) -> dict[str, Any]:
        pod = super().render(*arguments)
        for owner in pod["metadata"]["ownerReferences"]:
            owner |= {"apiVersion": "v1", "kind": "ConfigMap"}
        return pod


def _pod_spec() -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": objects.CONTAINER, "image": "localhost/none:1"}],
    }


@contextmanager
def _account(crowd: Crowd, rows: list[Any], what: str, limit: tuple[str, float]) -> Iterator[Any]:
    """Add rows for the seconds that are put into the list that this yields."""
    requests, cpu_s, began = crowd.requests, _cpu_s(), time.monotonic()
    seconds: list[float] = []
    yield seconds
    wall_s = time.monotonic() - began
    rows.append((f"{PODS} pods: {what}", seconds[0], "s", *limit))
    sent = crowd.requests - requests
    rows.append((f"  requests meanwhile ({sent})", sent / wall_s, "1/s", "wall", 1.0))
    rows.append(("  processor time of the master", _cpu_s() - cpu_s, "s", "wall", wall_s))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def main(kubeconfig: str, kubectl: str) -> None:
    rows: list[Any] = []
    limit = ("at 10 a second", PODS / CREATED_PER_S)
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(kubeconfig, Path(folder))
        before = _rss_mib()
        with _account(crowd, rows, "asked for → all run", limit) as seconds:
            seconds.append(crowd.start())
        rows.append(("  memory of the master", _rss_mib(), "MiB", "before", before))
        with _account(crowd, rows, "deleted at once → all noticed", ("none", 0.0)) as seconds:
            seconds.append(crowd.lose(kubectl, f"--kubeconfig={kubeconfig}"))
        with _account(crowd, rows, "asked for again → all run", limit) as seconds:
            seconds.append(crowd.start())
        rows.append(("  memory of the master", _rss_mib(), "MiB", "before", before))
    print(json.dumps(rows), flush=True)
    # The pods go with the cluster.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
