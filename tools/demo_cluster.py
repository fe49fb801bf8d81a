"""What ``./dev demo --platform kubernetes`` runs on: a cluster, the builder's engine, a registry.

All of them are those of the tests, and need root. A cluster that runs already, from ``./dev cluster
up``, is used, and left as it was; otherwise one is started, and ended.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import job_image
from tests.builder import docker_environment, layers
from tests.kubernetes.cluster import binaries, jobs_namespace, requirements
from tests.kubernetes.cluster.__main__ import ROOT as RUNNING
from tests.kubernetes.cluster.cluster import Cluster


@dataclass(frozen=True)
class DemoCluster:
    """A cluster that jobs can be sent to.

    Attributes:
        environ: variables for ``edl``.
        arguments: options of every job.
    """

    cluster: Cluster
    environ: Mapping[str, str]
    arguments: tuple[str, ...]

    def pods(self) -> str:
        """Say how many pods of jobs the kubelets have started, and on which nodes."""
        listed = self.cluster.kubectl(
            *("get", "events", f"--namespace={jobs_namespace.NAMESPACE}", "--output=json"),
            "--field-selector=reason=Started",
        )
        items = json.loads(listed)["items"]
        names = {item["involvedObject"]["name"] for item in items}
        nodes = sorted({item["source"]["host"] for item in items})
        return f"{len(names)}, started by the kubelet of {', '.join(nodes)}"


@contextlib.contextmanager
def open_cluster(place: Path) -> Iterator[DemoCluster]:
    """Start what does not run; pods see ``place`` under its own path."""
    # An end by a signal, too, takes the cluster and the engine along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if missing := requirements.missing():
        sys.exit(f"demo: a cluster needs: {', '.join(missing)}")
    if reason := docker_environment.missing_requirements():
        sys.exit(f"demo: {reason}")
    with contextlib.ExitStack() as running:
        cluster = running.enter_context(_cluster())
        docker_env = running.enter_context(docker_environment.open_environment(bases=False))
        _say("making the base image, which has edl and TensorFlow, in a registry")
        base = f"{docker_env.registry}/edl/job:1"
        layers.push(base, job_image.make().layers, job_image.CONFIG)
        running.enter_context(cluster.registry(int(docker_env.registry.rpartition(":")[2])))
        submitter = jobs_namespace.prepare(cluster, place, image=False)
        running.callback(jobs_namespace.remove, cluster, submitter)
        built = {
            "EDL_ENGINE": docker_env.engine,
            "EDL_REPOSITORY": f"{docker_env.registry}/demo/zoo",
            "EDL_BASE_IMAGE": base,
            "EDL_BUILD_NETWORK": "host",
        }
        yield DemoCluster(cluster, {**submitter.environ, **built}, submitter.arguments)


@contextlib.contextmanager
def _cluster() -> Iterator[Cluster]:
    if (RUNNING / "state.json").exists():
        cluster = Cluster.load(RUNNING)
        _say(f"using the cluster of {cluster.layout.kubeconfig}")
        yield cluster
        return
    if not binaries.is_built():
        _say("building Kubernetes; this takes five to ten minutes, once")
    _say("starting a cluster")
    with tempfile.TemporaryDirectory(prefix="edl-demo-", dir="/var/tmp") as folder:
        cluster = Cluster.start(Path(folder) / "cluster", niceness=0)
        try:
            yield cluster
        except subprocess.CalledProcessError as error:
            _say(f"{error}: {error.stderr}")
            raise
        finally:
            cluster.end()


def _say(what: str) -> None:
    print(f"demo: {what}", file=sys.stderr, flush=True)
