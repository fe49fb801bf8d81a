"""Submissions to a real cluster that are refused, fail, are cut off, or only shown."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from submitter import Submitter, eventually

from edl_kubernetes import job_creation
from edl_kubernetes.cluster import objects
from edl_kubernetes.start import JobStart


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
        (2, "there is no serviceaccount missing", ("--service-account", "missing")),
        (2, "there is no persistentvolumeclaim mine", ("--state-volume", "mine")),
        (2, "there is no persistentvolumeclaim data", ("--volumes", "claim/data:/data")),
        (2, "there is no secret login", ("--image-pull-secrets", "login")),
        (2, "there is no configmap c", ("--env-from", "configmap/c")),
        (2, "there is no priorityclass high", ("--worker-priority-class", "high=1,low=rest")),
        (2, "there is no priorityclass top", ("--priority-class", "top")),
        (2, "there is no ingressclass inner", ("--ingress={name}.org", "--ingress-class=inner")),
        (2, "not a quantity of memory", ("--worker-resources", "memory=lots")),
        (2, "pods do not see this machine's files", ("--data", str(submitter.place))),
        (2, "template cannot be read", ("--pod-template", "missing.yaml")),
        (2, "it is a Deployment", ("--pod-template", template({"kind": "Deployment"}))),
        (2, "edl sets", ("--pod-template", template({"metadata": {"name": "x"}}))),
        (2, "nodeSelctor", ("--pod-template", template({"spec": {"nodeSelctor": {}}}))),
        (2, "there is no secret keys", ("--pod-template", template(secret_volume("keys")))),
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
        (submitter.kubeconfig(server=server.replace("https", "http")), 11, "an HTTPS server"),
        (submitter.kubeconfig(token="two\nlines"), 11, "the token contains a line break"),
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
    assert submitter.list_objects() == []


def secret_volume(name: str, *keys: str) -> dict[str, Any]:
    items = {"items": [{"key": key, "path": key} for key in keys]} if keys else {}
    # A node prepares only what a container mounts.
    mounts = [{"name": "more", "mountPath": "/more"}]
    return {
        "spec": {
            "volumes": [{"name": "more", "secret": {"secretName": name, **items}}],
            "containers": [{"name": objects.CONTAINER, "volumeMounts": mounts}],
        }
    }


def test_a_master_that_cannot_start_says_why_and_leaves_nothing(submitter: Submitter) -> None:
    never = {"containers": [{"name": objects.CONTAINER, "imagePullPolicy": "Never"}]}
    template = submitter.template({"spec": never})
    submitter.kubectl("create", "secret", "generic", "keys", "--from-literal=first=1")
    without_key = submitter.template(secret_volume("keys", "second"))
    missing = "localhost/missing@sha256:" + 64 * "0"
    cases: list[tuple[int, str, tuple[str, ...]]] = [
        (1, "ErrImageNeverPull", ("--image", missing, "--pod-template", template)),
        (1, "executable file not found", ()),
        (
            8,
            "references non-existent secret key: second",
            ("--pod-template", without_key, "--start-timeout", "10s"),
        ),
        (1, "exec format error", ("--pod-template", submitter.foreign())),
        (
            8,
            "no node can take it",
            ("--master-resources", "cpu=900", "--start-timeout", "10s"),
        ),
        (1, "exit code 1", ("--pod-template", submitter.play("crash"))),
    ]
    for code, said, more in cases:
        done = submitter.train(*more)
        assert (done.code, said in done.err) == (code, True), f"{said}: {done}"
        assert "what to do: " in done.err
        if code == 8:  # it was waited for, and the reason was shown
            before, told, _ = done.err.partition("digits waits for its master: ")
            assert told, done.err
            assert "error: " not in before
        eventually(lambda: submitter.list_objects() == [], "everything is gone")


def test_a_quota_of_objects_is_named_with_its_own_remedy_and_leaves_nothing(
    submitter: Submitter,
) -> None:
    for resource, said in (
        ("count/secrets=1", "The namespace may have no more secrets: delete jobs that are over"),
        ("services=0", "The namespace may have no more services"),
        ("pods=0", "Ask for fewer pods with --num-workers"),
    ):
        submitter.kubectl("create", "quota", "few", f"--hard={resource}")
        counted = ("get", "quota", "few", "--output=jsonpath={.status.used}")
        eventually(partial(submitter.kubectl, *counted), "the quota counts")
        done = submitter.train()
        assert (done.code, said in done.err) == (10, True), done
        assert "--master-resources" not in done.err
        eventually(lambda: submitter.list_objects() == [], "everything is gone")
        submitter.kubectl("delete", "quota", "few")


class Registry(BaseHTTPRequestHandler):
    """A registry that has one image, which is for ARM alone."""

    kind = "application/vnd.oci.image.index.v1+json"
    index = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": kind,
            "manifests": [
                {
                    "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "digest": f"sha256:{64 * 'a'}",
                    "size": 400,
                    "platform": {"architecture": "arm64", "os": "linux"},
                }
            ],
        }
    ).encode()
    digest = f"sha256:{hashlib.sha256(index).hexdigest()}"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        found = self.path == f"/v2/zoo/manifests/{self.digest}"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", self.kind)
        self.send_header("Docker-Content-Digest", self.digest)
        self.send_header("Content-Length", str(len(self.index) if found else 0))
        self.end_headers()
        if found and self.command == "GET":
            self.wfile.write(self.index)


@pytest.mark.parametrize(
    ("digest", "said"),
    [(f"sha256:{64 * '0'}", "not found"), (Registry.digest, "no match for platform in manifest")],
)
def test_an_image_that_no_registry_has_for_the_nodes_fails_the_submission(
    submitter: Submitter, digest: str, said: str
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            port = server.server_address[1]
            with submitter.cluster.registry(port):
                done = submitter.train("--image", f"127.0.0.1:{port}/zoo@{digest}")
        finally:
            server.shutdown()
    assert done.code == 1, done
    assert "ErrImagePull" in done.err
    assert said in done.err
    assert "what to do: Check --image, its architecture" in done.err
    assert "--start-timeout" not in done.err, "another attempt would end alike: at once"
    eventually(lambda: submitter.list_objects() == [], "everything is gone")


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
    assert not submitter.has_pods()
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
    eventually(lambda: submitter.list_objects() == [], "everything is gone")


KILLED_IN_A_SUBMISSION = """
import os, sys
from edl.__main__ import run
from edl_kubernetes import job_creation
job_creation.create_owned = lambda *_: os._exit(9)
run(sys.argv[1:])
"""


def test_a_client_that_is_killed_in_a_submission_leaves_what_delete_removes(
    submitter: Submitter,
) -> None:
    program = (sys.executable, "-c", KILLED_IN_A_SUBMISSION)
    done = subprocess.run((*program, *submitter.arguments()), check=False, capture_output=True)
    assert done.returncode == 9, done.stderr
    # Suspended: the job asks for nothing until a client looks at it.
    assert submitter.list_objects() == ["job.batch/edl-digits"]
    assert submitter.edl("list", "-n", submitter.namespace, "-o", "name").out.split() == ["digits"]
    deleted = submitter.edl("delete", "digits", "--yes", "--stop", "-n", submitter.namespace)
    assert deleted.code == 0, deleted
    eventually(lambda: submitter.list_objects() == [], "everything is gone")


def test_a_job_that_is_being_deleted_is_followed_by_the_next_one_of_its_name(
    submitter: Submitter,
) -> None:
    """GitOps tools delete a job and wait for its pods; here a finalizer delays the end."""
    queued = ("--suspend", "--detach")
    assert submitter.train(*queued).code == 0

    def hold(*finalizers: str) -> None:
        changes = json.dumps({"metadata": {"finalizers": finalizers}})
        submitter.kubectl("patch", "job", "edl-digits", "--type=merge", f"--patch={changes}")

    def uid() -> str:
        return submitter.kubectl("get", "job", "edl-digits", "--output=jsonpath={.metadata.uid}")

    former = uid()
    hold("example.com/hold")
    submitter.kubectl("delete", "job", "edl-digits", "--wait=false")
    release = threading.Timer(8.0, hold)
    release.start()
    done = submitter.train(*queued)
    release.join()
    assert done.code == 0, done
    assert "digits waits for the removal of a former job of its name" in done.err
    assert uid() != former
    assert submitter.edl("delete", "digits", "--yes", "--stop", "-n", submitter.namespace).code == 0
    eventually(lambda: submitter.list_objects() == [], "everything is gone")


def test_a_submission_whose_cluster_goes_away_names_what_removes_its_job(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creation, "RETRY_S", 1.0)
    wait = JobStart.wait

    def wait_in_vain(start: JobStart) -> None:
        submitter.cluster.stop_api_server()
        wait(start)

    monkeypatch.setattr(JobStart, "wait", wait_in_vain)
    try:
        done = submitter.train("--master-resources", "cpu=900", "--start-timeout", "1s")
    finally:
        submitter.cluster.start_api_server()
    assert (done.code, "the cluster does not answer" in done.err) == (11, True), done
    (removal,) = [line for line in done.err.splitlines() if "edl delete" in line]
    deleted = submitter.edl(*shlex.split(removal.partition("edl ")[2]))
    assert deleted.code == 0, deleted
    eventually(lambda: submitter.list_objects() == [], "everything is gone")


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
    assert submitter.list_objects() == []
