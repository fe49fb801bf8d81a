"""The client on a real cluster: bad input, the objects of a job, and every command about it.

The master is fake; ``fake_pod.py`` runs in its pod.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE

from edl.__main__ import run
from edl.adapters.kubernetes.backend import KubernetesJobBackend, kubernetes_jobs
from edl.adapters.kubernetes.session import ClusterSession
from edl.core.cluster.choice import ClusterChoice
from edl.core.job_status import JobState
from edl.core.options.kinds import WorkerRange
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.kubernetes import objects
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc

ROOT = Path(__file__).parents[2]
MODEL = """
model = object()

def dataset_fn(dataset, mode): pass
def loss(labels, predictions): pass
def optimizer(): pass
"""
MASTER_VERBS = "get,list,watch,create,delete,update,patch"
MASTER_RESOURCES = "pods,pods/log,configmaps,jobs.batch,leases.coordination.k8s.io"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class Submitter:
    """Runs commands in this process, for a namespace of its own."""

    def __init__(
        self, cluster: Cluster, namespace: str, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.place = place
        self.image = _pinned(cluster, BUSYBOX_IMAGE)
        self._capsys = capsys
        (place / "zoo").mkdir()
        (place / "zoo" / "mine.py").write_text(MODEL)
        cluster.kubectl("create", "namespace", namespace)
        account = objects.MASTER_ACCOUNT
        self.kubectl("create", "serviceaccount", account)
        verbs = (f"--verb={MASTER_VERBS}", f"--resource={MASTER_RESOURCES}")
        self.kubectl("create", "role", account, *verbs)
        subject = f"--serviceaccount={namespace}:{account}"
        self.kubectl("create", "rolebinding", account, f"--role={account}", subject)

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

    def left(self) -> list[str]:
        """Objects of jobs."""
        kinds = "jobs,pods,services,secrets,persistentvolumeclaims,configmaps"
        listed = self.kubectl("get", kinds, "--output=name").split()
        return [name for name in listed if "/edl-" in name]

    def backend(self) -> KubernetesJobBackend:
        choice = ClusterChoice(namespace=self.namespace)
        return kubernetes_jobs(ClusterSession(choice, os.environ))

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


def _pinned(cluster: Cluster, image: str) -> str:
    """The image by its digest, under a name that nodes know."""
    for sandbox in cluster.sandboxes.values():
        ctr = ("ctr", "--namespace=k8s.io", "images")
        rows = [line.split() for line in sandbox.run(*ctr, "ls").splitlines()]
        (digest,) = (row[2] for row in rows if row[0] == image)
        pinned = f"{image.rpartition(':')[0]}@{digest}"
        sandbox.run(*ctr, "tag", "--force", image, pinned)
    return pinned


def eventually(condition: Callable[[], Any], what: str, timeout: float = 300) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.2)
    return value


@pytest.fixture
def submitter(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Submitter]:
    for name in [name for name in os.environ if name.startswith("EDL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(cluster.layout.kubeconfig))
    monkeypatch.chdir(tmp_path)
    made = Submitter(cluster, f"client-{secrets.token_hex(4)}", tmp_path, capsys)
    yield made
    cluster.kubectl("delete", "namespace", made.namespace, "--wait=false")


# --- bad input -----------------------------------------------------------------------------


def test_bad_input_has_one_message_a_code_and_leaves_nothing(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    quota["spec"] = {"hard": {"requests.memory": "200Gi"}}
    submitter.kubectl("create", "-f-", stdin=json.dumps(quota))
    template = submitter.template
    cases: list[tuple[int, str, tuple[str, ...]]] = [
        (2, "there is no namespace nowhere", ("--namespace", "nowhere")),
        (2, "no context other", ("--context", "other")),
        (2, "there is no serviceaccount nobody", ("--service-account", "nobody")),
        (2, "there is no persistentvolumeclaim mine", ("--state-volume", "mine")),
        (2, "there is no persistentvolumeclaim data", ("--volumes", "claim/data:/data")),
        (2, "there is no secret login", ("--image-pull-secrets", "login")),
        (2, "there is no configmap c", ("--env-from", "configmap/c")),
        (2, "there is no priorityclass high", ("--worker-priority-class", "high=1,low=rest")),
        (2, "there is no priorityclass top", ("--priority-class", "top")),
        (2, "not a quantity of memory", ("--worker-resources", "memory=lots")),
        (2, "pods do not see this machine's files", ("--data", str(submitter.place))),
        (2, "template cannot be read", ("--pod-template", "missing.yaml")),
        (2, "it is a Deployment", ("--pod-template", template({"kind": "Deployment"}))),
        (2, "edl sets", ("--pod-template", template({"metadata": {"name": "x"}}))),
        (2, "nodeSelctor", ("--pod-template", template({"spec": {"nodeSelctor": {}}}))),
        (10, "exceeded quota", ("--worker-resources", "memory=999Gi")),
    ]
    for code, said, more in cases:
        done = submitter.train(*more)
        assert (done.code, said in done.err) == (code, True), f"{said}: {done}"
        assert "what to do: " in done.err, done.err
    own = yaml.safe_load(submitter.cluster.layout.kubeconfig.read_text())
    server = own["clusters"][0]["cluster"]["server"]  # without the authority that signed for it
    for kubeconfig, code, said in (
        ("/nonexistent", 11, "there is no kubeconfig"),
        (submitter.kubeconfig(server=server), 11, "certificate of the cluster's API server"),
        (submitter.kubeconfig(server="https://127.0.0.1:9"), 11, "does not answer"),
        (submitter.kubeconfig(token="expired"), 10, "does not accept your credentials"),
    ):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        done = submitter.train()
        assert (done.code, said in done.err) == (code, True), f"{said}: {done}"
    token = submitter.kubectl("create", "token", "default").strip()
    monkeypatch.setenv("KUBECONFIG", submitter.kubeconfig(token=token))
    done = submitter.train()
    assert done.code == 10
    assert "is forbidden" in done.err
    assert submitter.left() == []


def test_a_master_that_cannot_start_says_why_and_leaves_nothing(submitter: Submitter) -> None:
    never = {"containers": [{"name": objects.CONTAINER, "imagePullPolicy": "Never"}]}
    template = submitter.template({"spec": never})
    missing = "localhost/missing@sha256:" + 64 * "0"
    cases: list[tuple[int, str, tuple[str, ...]]] = [
        (1, "ErrImageNeverPull", ("--image", missing, "--pod-template", template)),
        (1, "the image has no edl_master", ()),
        (1, "the image is for another architecture", ("--pod-template", submitter.foreign())),
        (
            8,
            "no node has room for it",
            ("--master-resources", "cpu=900", "--start-timeout", "10s"),
        ),
        (1, "exit code 1", ("--pod-template", submitter.play("crash"))),
    ]
    for code, said, more in cases:
        done = submitter.train(*more)
        assert (done.code, said in done.err) == (code, True), f"{said}: {done}"
        assert "what to do: " in done.err
        eventually(lambda: submitter.left() == [], "everything is gone")


def test_an_image_that_no_registry_has_fails_the_submission(
    submitter: Submitter, tmp_path: Path
) -> None:
    empty = tmp_path / "registry"
    empty.mkdir()
    answer = partial(SimpleHTTPRequestHandler, directory=empty)
    with ThreadingHTTPServer(("127.0.0.1", 0), answer) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            port = server.server_address[1]
            with submitter.cluster.registry(port):
                image = f"127.0.0.1:{port}/zoo@sha256:{64 * '0'}"
                done = submitter.train("--image", image)
        finally:
            server.shutdown()
    assert done.code == 1, done
    assert "ErrImagePull" in done.err
    assert "not found" in done.err
    assert "what to do: Check --image" in done.err
    eventually(lambda: submitter.left() == [], "everything is gone")


def test_a_namespace_of_the_restricted_level_takes_jobs_and_refuses_more(
    submitter: Submitter,
) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    submitter.cluster.kubectl("label", "namespace", submitter.namespace, level)
    done = submitter.train("--suspend", "--detach")
    assert done.code == 0, done.err
    (own,) = json.loads(submitter.kubectl("get", "jobs", "--output=json"))["items"]
    assert own["spec"]["suspend"]
    assert objects.ANNOTATION_SUBMITTING not in own["metadata"].get("annotations", {})
    assert submitter.kubectl("get", "pods", "--output=name") == ""
    scaled = submitter.edl("scale", "digits", "--workers", "3", "-n", submitter.namespace)
    assert (scaled.code, "digits is suspended" in scaled.err) == (2, True), scaled
    resumed = submitter.edl("resume", "digits", "-n", submitter.namespace)
    assert (resumed.code, "digits is suspended" in resumed.err) == (2, True), resumed
    shown = submitter.edl("status", "digits", "-n", submitter.namespace)
    assert "waiting: its Job is suspended until a queue, or a person, releases it" in shown.out
    done = submitter.train("--num-epochs", "7")
    assert done.code == 5, done.err
    assert "training.num_epochs" in done.err
    host = {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
    done = submitter.train("--pod-template", submitter.template({"spec": host}), name="other")
    assert done.code == 10, done.err
    assert "violates PodSecurity" in done.err
    submitter.edl("delete", "digits", "--yes", "--stop", "-n", submitter.namespace)
    eventually(lambda: submitter.left() == [], "everything is gone")


KILLED_IN_A_SUBMISSION = """
import os, sys
from edl.__main__ import run
from edl.adapters.kubernetes import job_creation
job_creation.create_owned = lambda *_: os._exit(9)
run(sys.argv[1:])
"""


def test_a_client_that_is_killed_in_a_submission_leaves_what_delete_removes(
    submitter: Submitter,
) -> None:
    program = (sys.executable, "-c", KILLED_IN_A_SUBMISSION)
    done = subprocess.run((*program, *submitter.arguments()), check=False, capture_output=True)
    assert done.returncode == 9, done.stderr
    # Suspended: it asks for nothing until somebody looks.
    assert submitter.left() == ["job.batch/edl-digits"]
    assert submitter.edl("list", "-n", submitter.namespace, "-o", "name").out.split() == ["digits"]
    deleted = submitter.edl("delete", "digits", "--yes", "--stop", "-n", submitter.namespace)
    assert deleted.code == 0, deleted
    eventually(lambda: submitter.left() == [], "everything is gone")


# --- objects -------------------------------------------------------------------------------


def test_a_dry_run_prints_what_kubectl_would_apply_and_makes_nothing(
    submitter: Submitter,
) -> None:
    more = ("--state-volume", "1Gi", "--ingress", "{name}.example.com", "--num-workers", "2")
    done = submitter.train("--dry-run", "-o", "yaml", *more)
    assert done.code == 0, done.err
    shown = yaml.safe_load(done.out)
    kinds = [item["kind"] for item in shown["items"]]
    identities = ["Secret", "Secret"]  # of the authority, and of workers
    claim_and_page = ["PersistentVolumeClaim", "Ingress"]
    assert kinds == ["Secret", "Service", *claim_and_page, *identities, "Job"]
    assert "PRIVATE KEY" not in done.out
    applied = submitter.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f-", stdin=done.out
    )
    assert applied.count("created (server dry run)") == len(kinds)
    assert submitter.left() == []


# --- a job ---------------------------------------------------------------------------------


def test_a_job_is_watched_scaled_lost_resumed_stopped_and_deleted(submitter: Submitter) -> None:
    done = submitter.train("--pod-template", submitter.play("endless"), "--detach", name="live")
    assert done.code == 0, done.err
    other = submitter.backend()
    eventually(lambda: other.status("live").status.state is JobState.RUNNING, "the job runs")
    assert [entry.name for entry in other.list()] == ["live"]
    # The address is open to this user alone; the link of the backend proves who it is.
    with channels.connect(other.reach("live")) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            job_pb2_grpc.JobStub(channel).Stop(job_pb2.StopRequest(reason="me"), timeout=200)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert other.scale("live", WorkerRange(1, 3)) == WorkerRange(1, 3)
    assert "secret/edl-live.workers-1" not in submitter.left()
    assert other.scale("live", WorkerRange(1, 65)) == WorkerRange(1, 65)
    assert "secret/edl-live.workers-1" in submitter.left(), "the master could not make it"
    # Everything that was made goes with the Job.
    for name in submitter.left():
        item = json.loads(submitter.kubectl("get", name, "--output=json"))
        owners = [it["name"] for it in item["metadata"].get("ownerReferences", ())]
        assert owners == ["edl-live"] or name == "job.batch/edl-live"
    kinds = {event.kind for event in other.events("live")}
    assert {"JobStarted", "Scaled"} <= kinds
    with other.serve_page("live", 0) as page:
        import urllib.request

        with urllib.request.urlopen(page.url, timeout=60) as answer:
            assert answer.read() == b"the page of a fake job"

    in_namespace = ("-n", submitter.namespace)
    listed = submitter.edl("list", "-A", "-o", "name")
    assert f"{submitter.namespace}/live" in listed.out.split()
    logs = submitter.edl("logs", "live", *in_namespace)
    assert "[master] fake job listens" in logs.out
    before = other.reach("live")
    submitter.kubectl("delete", "pod", "--selector", f"{objects.LABEL_ROLE}=master", "--wait=false")
    eventually(lambda: other.reach("live") not in ("", before), "another master answers")

    stopped = submitter.edl("stop", "live", "--now", *in_namespace, "-o", "json")
    assert json.loads(stopped.out)["state"] == "LOST", stopped
    eventually(lambda: submitter.kubectl("get", "pods", "--output=name") == "", "all pods are gone")
    assert other.continuation.resume("live")
    assert not other.continuation.resume("live")
    eventually(lambda: other.status("live").status.state is JobState.RUNNING, "it runs again")
    stopped = submitter.edl("stop", "live", *in_namespace, "-o", "json")
    assert json.loads(stopped.out)["state"] == "CANCELLED", stopped
    eventually(lambda: other.status("live", ask=False).is_over, "that is recorded")
    assert "JobStopped" in {event.kind for event in other.events("live")}
    deleted = submitter.edl("delete", "live", "--yes", *in_namespace)
    assert deleted.code == 0, deleted
    assert other.list() == []
    eventually(lambda: submitter.left() == [], "everything is gone")
    other.close()


def test_the_end_and_a_first_word_of_the_master_reach_the_caller(submitter: Submitter) -> None:
    done = submitter.train("--pod-template", submitter.play("early"), name="early")
    assert done.code == 3, done
    assert "chunk 3 is damaged" in done.err
    backend = submitter.backend()
    assert backend.status("early").status.state is JobState.FAILED, "it can be looked at"
    for call in (
        lambda: backend.scale("early", WorkerRange(1, 1)),
        lambda: backend.continuation.resume("early"),
    ):
        with pytest.raises(EdlError) as caught:
            call()
        assert caught.value.code == ErrorCode.JOB_OVER
    backend.delete("early")
    with pytest.raises(EdlError) as caught:
        backend.status("nobody")
    assert caught.value.code == ErrorCode.JOB_NOT_FOUND
    backend.close()
