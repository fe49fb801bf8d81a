"""Whole jobs, by the rights of the roles in ``deploy/kubernetes`` alone."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import s3fs
from cluster import jobs_namespace, kueue
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE
from cluster.jobs_namespace import NAMESPACE, Submitter
from held_jobs import HeldZoo, count_trained, edl, eventually, pods
from moto.server import ThreadedMotoServer
from safetensors.numpy import load_file

import recordio
import recordio.example
from edl_kubernetes.cluster import objects
from tests import image_packages

ROOT = Path(__file__).parents[2]
RECORDS = 803
EPOCHS = 8
"""While they are held, two workers take more than five minutes for all epochs."""


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """Make a folder that pods see under its own path: not below /tmp, where pods have their own."""
    with tempfile.TemporaryDirectory(prefix="edl-jobs-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def submitter(cluster: Cluster, files: Path, job_image: str) -> Iterator[Submitter]:
    prepared = jobs_namespace.prepare(cluster, files, image=False)
    # Jobs across nodes are those of test_faults.py and test_master.py, which need no image.
    cluster.kubectl("cordon", "node2")
    compiled = files / "compiled"  # the loops of masters, which each pod would compile anew
    compiled.mkdir()
    compiled.chmod(0o777)
    more = ("--image", job_image, "--env", f"NUMBA_CACHE_DIR={compiled}")
    yield replace(prepared, arguments=(*more, *prepared.arguments))
    cluster.kubectl("uncordon", "node2")


@pytest.fixture(scope="module")
def zoo(cluster: Cluster, submitter: Submitter, files: Path) -> HeldZoo:
    return HeldZoo(cluster, files)


@pytest.fixture(scope="module")
def numbers(files: Path) -> Path:
    data = files / "numbers.recordio"
    with recordio.Writer(str(data)) as writer:
        for number in range(RECORDS):
            writer.write(recordio.example.encode({"number": np.array([number])}))
    return data


def intrude(cluster: Cluster, files: Path, image: str, targets: list[str]) -> dict[str, Any]:
    """Return what a pod beside the job sees of it, with the identity of worker 1."""
    shutil.copy(ROOT / "tests" / "kubernetes" / "intruder.py", files)
    identity = {"name": "id", "secret": objects.identity_source("counting", objects.WORKER, 1)}
    container = {
        "name": "intruder",
        "image": image,
        "command": ["python3", str(files / "intruder.py"), *targets],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": str(files)},
            {"name": "id", "mountPath": objects.IDENTITY_DIRECTORY},
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        # The network policies let pods of edl reach each other.
        "metadata": {"name": "intruder", "labels": {"app.kubernetes.io/name": "edl"}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
                identity,
            ],
        },
    }
    here = f"--namespace={NAMESPACE}"
    cluster.kubectl("create", "-f-", here, stdin=json.dumps(pod))

    def phase() -> str:
        pod = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/intruder")
        return str(pod["status"]["phase"])

    eventually(lambda: phase() in ("Succeeded", "Failed"), "the intruder gives up")
    said = cluster.kubectl("logs", "intruder", here)
    assert phase() == "Succeeded", said
    cluster.kubectl("delete", "pod", "intruder", here, "--wait=false")
    seen: dict[str, Any] = json.loads(said.splitlines()[-1])
    return seen


def predict(
    submitter: Submitter, zoo: HeldZoo, files: Path, model: Path, name: str, output: str, *more: str
) -> None:
    """Start a job that predicts what was trained on."""
    edl(
        submitter,
        *("predict", "--name", name, *submitter.arguments, "--volumes", zoo.volume),
        *("--trained-model", str(model), "--trust-model", "--num-workers", "1"),
        *("--data", str(files / "numbers.recordio"), "--output", output, *more, "--detach"),
    )


def check_predictions(
    cluster: Cluster, submitter: Submitter, zoo: HeldZoo, files: Path, model: Path
) -> None:
    """Each record once: workers and master share the place of the output, and nothing else."""
    folder = files / "predictions"
    predict(submitter, zoo, files, model, "in-folder", str(folder))
    packages = files / "packages"
    image_packages.install_outside(packages, ["s3fs"])  # the image has no client of stores
    access = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    given = [f"--from-literal={name}={value}" for name, value in access.items()]
    cluster.kubectl("create", "secret", "generic", "s3", *given, f"--namespace={NAMESPACE}")
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = s3fs.S3FileSystem(key="t", secret="t", endpoint_url=f"http://{host}:{port}")
        store.mkdir("kept")
        with cluster.open_port(port) as address:
            predict(
                *(submitter, zoo, files, model, "in-store", "s3://kept/predictions"),
                *("--env-from", "secret/s3", "--env", f"AWS_ENDPOINT_URL=http://{address}"),
                *("--env", "AWS_DEFAULT_REGION=us-east-1", "--env", f"PYTHONPATH={packages}"),
            )
            edl(submitter, "wait", "in-store")
        left = ["kept/predictions/numbers.recordio"]
        assert store.find("kept") == left, "no part"
        store.get("kept/predictions/numbers.recordio", str(files / "stored.recordio"))
    finally:
        server.stop()
    edl(submitter, "wait", "in-folder")
    for path in (folder / "numbers.recordio", files / "stored.recordio"):
        assert recordio.open_source(str(path), format="recordio").count() == RECORDS
    assert not list(files.glob(".*")), "no part is left"
    for name in ("in-folder", "in-store"):
        edl(submitter, "delete", name, "--yes")


def export_meanwhile(submitter: Submitter, files: Path) -> None:
    """The model of a job that goes on, from its last snapshot."""
    output = files / "models" / "so-far"
    edl(submitter, "export", "counting", "--output", str(output))
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert 0 < np.sum(weights) < EPOCHS * RECORDS
    assert edl(submitter, "list", "-o", "name").split() == ["counting"]


def test_a_job_of_a_submitter_counts_each_record_once_and_refuses_other_callers(
    cluster: Cluster, submitter: Submitter, files: Path, zoo: HeldZoo, numbers: Path, job_image: str
) -> None:
    output = files / "models" / "counting"
    zoo.hold()
    edl(
        submitter,
        *("train", "--name", "counting", *submitter.arguments, "--volumes", zoo.volume),
        *("--num-workers", "2", "--parameter-servers", "1", *zoo.arguments),
        *("--params", f"size={RECORDS}", "--data", str(numbers)),
        *("--minibatch-size", "16", "--num-epochs", str(EPOCHS), "--snapshot-interval", "1s"),
        *("--output", str(output), "--detach", "-o", "json"),
    )

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(edl(submitter, "status", "counting", "-o", "json"))
        return found

    eventually(lambda: count_trained(files, "counting") > 0, "training")

    # A caller without an identity of this job is refused; one with an identity makes its own calls.
    (master,), (server,) = pods(cluster, objects.MASTER), pods(cluster, objects.SERVER)
    targets = [master["status"]["podIP"], "master.edl", server["status"]["podIP"], "server-0.edl"]
    seen = intrude(cluster, files, job_image, targets)
    assert seen.pop("files") == ["identity.pem"], "a pod sees its own identity alone"
    assert (seen.pop("lease of 0"), seen.pop("stop")) == ("FORBIDDEN", "FORBIDDEN")
    assert seen.pop("lease of 1") == "STALE_INCARNATION", "this one passes, and knows too little"
    refused = {"plain": False, "anonymous": False, "foreign": False}
    ports = [f"{host}:{port}" for host in targets[1::2] for port in (7070, 7071)]
    assert seen == {port: {**refused, "worker 1": True} for port in ports}

    # The next master has the same authority: the workers' pods, and their identities, stay.
    workers = {pod["metadata"]["uid"] for pod in pods(cluster, objects.WORKER)}
    named = master["metadata"]["name"]
    cluster.kubectl("delete", "pod", named, f"--namespace={NAMESPACE}", "--wait=false")
    eventually(
        lambda: (
            {pod["metadata"]["name"] for pod in pods(cluster, objects.MASTER)} - {named} != set()
        ),
        "the next master",
    )
    trained = status()["records_trained"]
    eventually(lambda: count_trained(files, "counting") > trained, "training goes on")
    assert {pod["metadata"]["uid"] for pod in pods(cluster, objects.WORKER)} == workers
    export_meanwhile(submitter, files)
    zoo.release()
    edl(submitter, "wait", "counting")
    assert status()["records_trained"] == EPOCHS * RECORDS
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert np.all(weights == EPOCHS)
    check_predictions(cluster, submitter, zoo, files, output)

    # The master's pod may be gone: what follows is answered by the record.
    listed = edl(submitter, "list", "-o", "name").split()
    assert listed == ["counting"]  # that of the predictions is deleted
    assert json.loads(edl(submitter, "status", "counting", "-o", "json"))["state"] == "SUCCEEDED"
    assert "records/s" in edl(submitter, "logs", "counting", "--tail", "500")
    edl(submitter, "delete", "counting", "--yes")
    cluster.kubectl(
        *("wait", "--for=delete", "job/edl-counting", f"--namespace={NAMESPACE}", "--timeout=300s")
    )
    owned = "jobs,pods,secrets,services,configmaps,leases"
    cluster.kubectl(
        *("wait", "--for=delete", owned, "--selector=app.kubernetes.io/instance=counting"),
        *(f"--namespace={NAMESPACE}", "--timeout=300s"),
    )


def test_pods_that_train_in_step_are_lost_and_added(
    cluster: Cluster, submitter: Submitter, files: Path, zoo: HeldZoo, numbers: Path
) -> None:
    """They add up their gradients from pod to pod, and each record counts once per epoch."""
    output = files / "models" / "replicated"
    zoo.hold()
    edl(
        submitter,
        *("train", "--name", "replicated", *submitter.arguments, "--volumes", zoo.volume),
        *("--strategy", "allreduce", "--num-workers", "3", *zoo.arguments),
        *("--params", f"size={RECORDS}", "--data", str(numbers), "--minibatch-size", "16"),
        *("--num-epochs", str(EPOCHS), "--output", str(output), "--detach"),
    )
    eventually(lambda: count_trained(files, "replicated") > 0, "training")
    lost = pods(cluster, objects.WORKER, "replicated")[0]["metadata"]["name"]
    cluster.kubectl(
        "delete", "pod", lost, f"--namespace={NAMESPACE}", "--grace-period=0", "--force"
    )
    eventually(
        lambda: (
            len(at_work := pods(cluster, objects.WORKER, "replicated")) == 3
            and lost not in {pod["metadata"]["name"] for pod in at_work}
        ),
        "another worker in its place",
    )
    trained = count_trained(files, "replicated")
    eventually(lambda: count_trained(files, "replicated") > trained, "training goes on")
    zoo.release()
    edl(submitter, "wait", "replicated")
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert np.all(weights == EPOCHS)
    edl(submitter, "delete", "replicated", "--yes")


URGENT = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "urgent",
        "namespace": "team-b",
        "labels": {"kueue.x-k8s.io/queue-name": "training"},
    },
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": BUSYBOX_IMAGE,
                        "command": ["sleep", "1000"],
                        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                    }
                ],
            }
        },
    },
}


def count_created_pods(cluster: Cluster) -> int:
    """Return how many pods the API server has created since its start."""
    metrics = cluster.kubectl("get", "--raw=/metrics")
    created = re.compile(r'apiserver_request_total\{(?=.*resource="pods")(?=.*subresource="")')
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in metrics.splitlines()
        if created.match(line) and 'verb="POST"' in line and 'code="201"' in line
    )


def test_kueue_holds_a_job_and_takes_places_from_another_one(
    cluster: Cluster, submitter: Submitter, files: Path, zoo: HeldZoo, numbers: Path
) -> None:
    """The quota of two teams is two pods each; the first job borrows the other team's."""
    documentation = (ROOT / "docs" / "kubernetes.md").read_text()
    queue = re.search(r"```yaml\n(# queue.yaml.*?)```", documentation, re.DOTALL)
    assert queue
    small = queue[1].replace("nominalQuota: 40", "nominalQuota: 200m")
    assert small != queue[1]
    queued = ("--labels", "kueue.x-k8s.io/queue-name=training", *submitter.arguments)
    weights = {}

    def train(name: str, workers: int) -> None:
        edl(
            submitter,
            *("train", "--name", name, *queued, "--volumes", zoo.volume, *zoo.arguments),
            *("--num-workers", str(workers), "--params", f"size={RECORDS}"),
            *("--data", str(numbers), "--minibatch-size", "16", "--num-epochs", str(EPOCHS)),
            *("--output", str(files / "models" / name), "--detach"),
        )

    def status(name: str) -> str:
        return edl(submitter, "status", name)

    zoo.hold()
    cluster.kubectl("create", "namespace", "team-b")
    with kueue.install(cluster):
        for team in (NAMESPACE, "team-b"):
            cluster.kubectl("apply", "-f-", stdin=small.replace("team-a", team))
        train("first", 3)
        eventually(lambda: len(pods(cluster, objects.WORKER, "first")) == 3, "three are admitted")
        train("second", 1)
        eventually(lambda: "until a queue" in status("second"), "the second job is held")

        before = count_created_pods(cluster)
        cluster.kubectl("create", "-f-", stdin=json.dumps(URGENT))
        ready = ("--for=jsonpath={.status.ready}=2", "job/urgent", "--timeout=600s")
        cluster.kubectl("wait", "--namespace=team-b", *ready)
        eventually(lambda: len(pods(cluster, objects.WORKER, "first")) == 1, "it shrinks")
        so_far = count_trained(files, "first")
        eventually(lambda: count_trained(files, "first") > so_far, "training goes on")
        eventually(lambda: "queue has not admitted it" in status("first"), "two wait")
        assert "its queue gave its place to others" in edl(submitter, "events", "first")
        assert "until a queue" in status("second"), "it is held still"
        # The two that are urgent, and one for each worker that is gone: none is tried again.
        assert count_created_pods(cluster) == before + 4

        zoo.release()
        for name in ("first", "second"):
            edl(submitter, "wait", name)
            model = files / "models" / name / "parameters.safetensors"
            (weights[name],) = load_file(model).values()
            edl(submitter, "delete", name, "--yes")
        cluster.kubectl("delete", "namespace", "team-b")
        cluster.kubectl("delete", "localqueue,clusterqueue,resourceflavor", "--all", "-A")
    assert all(np.all(each == EPOCHS) for each in weights.values())
