"""``deploy/kubernetes`` on a real API server: it is accepted, and gives no right too many."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from unittest import mock

import pytest
import yaml
from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE
from submitter import Done

from edl.__main__ import run
from edl_kubernetes.cluster import kubeconfig, objects
from edl_kubernetes.cluster.api import ApiError, KubernetesApi

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "deploy" / "kubernetes"
DOCUMENTATION = ROOT / "docs" / "kubernetes.md"
ENGINE = "docker.io/library/docker"
MASTER, SUBMITTER = "edl-master", "edl-submitter"


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster to which everything was applied, as the documentation says."""
    cluster.kubectl("apply", "--kustomize", str(DEPLOYMENT))
    yield cluster
    # Other tests make namespaces of the same names.
    lenient = ("--ignore-not-found", "--timeout=600s")
    cluster.kubectl("delete", "--kustomize", str(DEPLOYMENT), *lenient)


Asked = tuple[str, str]
"""A verb and a resource."""

GROUPS = {
    "jobs": "batch",
    "leases": "coordination.k8s.io",
    "ingresses": "networking.k8s.io",
    "ingressclasses": "networking.k8s.io",
    "networkpolicies": "networking.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
    "priorityclasses": "scheduling.k8s.io",
}

OF_THE_CLUSTER = (("get", "priorityclasses"), ("get", "ingressclasses"))
"""What submitters may do outside all namespaces: see whether a class exists."""


def find_allowed(
    cluster: Cluster, account: str, asked: Sequence[Asked], namespace: str = "edl-jobs"
) -> list[Asked]:
    """Return what the API server would let a service account do."""
    reviews = [_review(account, verb, what, namespace) for verb, what in asked]
    listed = {"apiVersion": "v1", "kind": "List", "items": reviews}
    show = "--output=jsonpath={.status.allowed}{' '}"
    answers = cluster.kubectl("create", "-f-", show, stdin=json.dumps(listed)).split()
    return [each for each, answer in zip(asked, answers, strict=True) if answer == "true"]


def _review(account: str, verb: str, what: str, namespace: str) -> dict[str, object]:
    resource, _, part = what.partition("/")
    attributes = {"group": GROUPS.get(resource, ""), "resource": resource, "subresource": part}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:edl-jobs:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {**attributes, "verb": verb, "namespace": namespace},
        },
    }


def test_applying_it_again_changes_nothing(deployed: Cluster) -> None:
    said = deployed.kubectl(
        *("apply", "--kustomize", str(DEPLOYMENT), "--dry-run=server", "--validate=strict")
    )
    lines = said.splitlines()
    assert len(lines) > 20
    # A pod template's defaults are filled in by the server, so no line may say "created".
    assert [line for line in lines if "unchanged" not in line] == []


def test_masters_may_do_what_they_need_and_read_no_secret(deployed: Cluster) -> None:
    needed = [
        *(("get", "pods"), ("list", "pods"), ("watch", "pods"), ("create", "pods")),
        *(("delete", "pods"), ("get", "pods/log"), ("get", "jobs"), ("patch", "jobs")),
        *(("get", "leases"), ("create", "leases"), ("update", "leases")),
        *(("get", "configmaps"), ("create", "configmaps"), ("update", "configmaps")),
    ]
    assert find_allowed(deployed, MASTER, needed) == needed
    refused = [
        *((verb, "secrets") for verb in ("get", "list", "watch", "create", "update", "patch")),
        *(("delete", "secrets"), ("create", "jobs")),
        *(("delete", "jobs"), ("create", "pods/exec"), ("get", "pods/portforward")),
        *(("patch", "pods"), ("create", "serviceaccounts/token"), ("get", "nodes")),
        *(("create", "rolebindings"), ("list", "configmaps"), ("delete", "configmaps")),
    ]
    assert find_allowed(deployed, MASTER, refused) == []
    assert find_allowed(deployed, MASTER, needed, "default") == []


def test_submitters_may_submit_and_follow_jobs_in_their_namespace_alone(deployed: Cluster) -> None:
    needed = [
        *((verb, "jobs") for verb in ("create", "get", "list", "patch", "delete")),
        *((verb, "pods") for verb in ("get", "list", "create", "delete")),
        *(("create", "secrets"), ("get", "secrets"), ("create", "services")),
        *(("create", "persistentvolumeclaims"), ("create", "ingresses"), ("get", "configmaps")),
        *(("get", "pods/portforward"), ("get", "pods/log"), ("list", "events")),
        *(("get", "serviceaccounts"), *OF_THE_CLUSTER),
    ]
    assert find_allowed(deployed, SUBMITTER, needed) == needed
    refused = [
        *(("list", "secrets"), ("delete", "secrets"), ("create", "pods/exec")),
        *(("create", "rolebindings"), ("update", "networkpolicies"), ("create", "priorityclasses")),
        *(("create", "serviceaccounts/token"), ("delete", "persistentvolumeclaims")),
    ]
    assert find_allowed(deployed, SUBMITTER, refused) == []
    elsewhere = [each for each in needed if each not in OF_THE_CLUSTER]
    for namespace in ("default", "edl-builder", "kube-system"):
        assert find_allowed(deployed, SUBMITTER, elsewhere, namespace) == []


TEAMS = ("team-a", "team-b")


class User:
    """A member of a team, with a certificate of the cluster's authority and edl's commands."""

    def __init__(self, cluster: Cluster, team: str, folder: Path) -> None:
        self.kubeconfig = folder / f"{team}.kubeconfig"
        self._folder = folder
        cluster.add_user(f"member-of-{team}", f"{team}-submitters", self.kubeconfig)
        self.api = KubernetesApi.from_kubeconfig(str(self.kubeconfig))

    def edl(self, *arguments: str) -> Done:
        """Run a command in this process: the start of one of its own costs most of a second."""
        environ = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self._folder)}
        with (
            mock.patch.dict(os.environ, environ),
            contextlib.chdir(self._folder),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            code = run(arguments)
        return Done(code, out.getvalue(), err.getvalue())

    def train(self, namespace: str, name: str) -> Done:
        """Submit a job that waits for its release."""
        return self.edl(
            *("train", "--platform", "kubernetes", "--namespace", namespace, "--name", name),
            *("--image", f"registry.example.com/zoo@sha256:{64 * '0'}", "--suspend", "--detach"),
            *("--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
            *("--data", "s3://bucket/x", "--output", "s3://bucket/out"),
        )

    def may(self, verb: str, what: str, namespace: str) -> bool:
        attributes = {"group": GROUPS.get(what, ""), "resource": what, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, "namespace": namespace}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.api.create(path, review)["status"]["allowed"])


@pytest.fixture(scope="module")
def users(
    deployed: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, User]]:
    """Members of two teams, whose namespaces are those of the documentation's overlay."""
    folder = tmp_path_factory.mktemp("teams")
    shutil.copytree(DEPLOYMENT, folder / "deploy" / "kubernetes")
    overlay = re.search(r"```yaml\n(# team-a/.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert overlay
    for team in TEAMS:
        (folder / team).mkdir()
        content = overlay[1].replace("team-a", team)
        (folder / team / "kustomization.yaml").write_text(content)
        deployed.kubectl("apply", "--kustomize", str(folder / team))
    yield {team: User(deployed, team, folder) for team in TEAMS}
    for team in TEAMS:
        lenient = ("--ignore-not-found", "--wait=false")
        deployed.kubectl("delete", "--kustomize", str(folder / team), *lenient)


def test_members_of_two_teams_submit_and_stop_in_their_own_namespace_alone(
    users: Mapping[str, User],
) -> None:
    for team, user in users.items():
        done = user.train(team, f"job-of-{team}")
        assert done.code == 0, done.err
        in_namespace = ("-n", team, "--platform", "kubernetes")
        assert user.edl("list", "-o", "name", *in_namespace).out.split() == [f"job-of-{team}"]
        shown = user.edl("status", f"job-of-{team}", *in_namespace)
        assert "its Job is suspended" in shown.out, shown
    for team, user in users.items():
        (other,) = set(TEAMS) - {team}
        job, elsewhere = f"job-of-{other}", ("-n", other, "--platform", "kubernetes")
        for refused in (
            user.train(other, "intruder"),
            user.edl("list", *elsewhere),
            user.edl("status", job, *elsewhere),
            user.edl("logs", job, *elsewhere),
            user.edl("scale", job, "--workers", "2", *elsewhere),
            user.edl("stop", job, *elsewhere),
            user.edl("delete", job, "--stop", "--yes", *elsewhere),
        ):
            assert (refused.code, "forbidden" in refused.err) == (10, True), refused
        here = f"namespaces/{other}"
        for asked in (f"secrets/edl-{job}", "secrets", "pods", "jobs"):
            group = "/apis/batch/v1" if asked == "jobs" else "/api/v1"
            with pytest.raises(ApiError, match="forbidden") as caught:
                user.api.get(f"{group}/{here}/{asked}")
            assert caught.value.status == 403
    for team, user in users.items():
        job, in_namespace = f"job-of-{team}", ("-n", team, "--platform", "kubernetes")
        assert user.edl("list", "-o", "name", *in_namespace).out.split() == [job], "it is intact"
        assert user.edl("stop", job, "--now", *in_namespace).code == 0
        assert user.edl("delete", job, "--stop", "--yes", *in_namespace).code == 0


def test_the_overlay_binds_its_own_group_and_accounts_alone(
    deployed: Cluster, users: Mapping[str, User]
) -> None:
    namespaces = (*TEAMS, "edl-jobs")
    for team, user in users.items():
        assert [each for each in namespaces if user.may("create", "jobs", each)] == [team]
        assert user.may("get", "priorityclasses", team)
    found = deployed.kubectl("get", "clusterrolebinding", "--output=json")
    readers = {
        f"{subject.get('namespace', '')}:{subject['name']}"
        for item in json.loads(found)["items"]
        if item["roleRef"]["name"] == "edl-priority-reader"
        for subject in item["subjects"]
    }
    accounts = {f"{each}:{SUBMITTER}" for each in namespaces}
    assert readers == accounts | {":edl-submitters", *(f":{team}-submitters" for team in TEAMS)}


def test_the_documentation_lists_each_field_of_a_kubeconfig() -> None:
    _, _, listed = DOCUMENTATION.read_text().partition("## Fields of a kubeconfig")
    fields = kubeconfig.USER_FIELDS | kubeconfig.CLUSTER_FIELDS
    assert [field for field in sorted(fields) if f"`{field}`" not in listed] == []


def test_the_namespace_of_jobs_refuses_pods_that_are_not_restricted(deployed: Cluster) -> None:
    container = {"name": "main", "image": BUSYBOX_IMAGE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [container]},
    }
    with pytest.raises(subprocess.CalledProcessError) as refused:
        deployed.kubectl("create", "-f-", "--namespace=edl-jobs", stdin=json.dumps(pod))
    assert 'violates PodSecurity "restricted' in refused.value.stderr


METADATA = (
    *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
)


@pytest.mark.parametrize(
    ("place", "closed"),
    [("namespace", METADATA), ("builder", (*METADATA, "10.0.0.1", "100.64.0.1", "fd00::1"))],
)
def test_no_policy_lets_pods_reach_the_metadata_of_a_cloud(
    place: str, closed: Sequence[str]
) -> None:
    policies = yaml.safe_load_all((DEPLOYMENT / place / "network-policies.yaml").read_text())
    ways = [way for one in policies for way in one["spec"].get("egress", ()) if "to" in way]
    blocks = [to["ipBlock"] for way in ways for to in way["to"] if "ipBlock" in to]
    assert blocks

    def is_open(text: str) -> bool:
        address = ip_address(text)
        return any(
            address in ip_network(block["cidr"])
            and not any(address in ip_network(each) for each in block["except"])
            for block in blocks
        )

    assert [each for each in closed if is_open(each)] == []
    assert is_open("203.0.113.1")


def test_every_image_is_our_own_or_pinned_by_its_digest(cluster: Cluster, tmp_path: Path) -> None:
    folders = [file.parent for file in DEPLOYMENT.rglob("kustomization.yaml")]
    images = {
        image
        for folder in folders
        for image in re.findall(r"image: (\S+)", cluster.kubectl("kustomize", str(folder)))
    }
    own = {each for each in images if each.startswith("registry.example.com/edl/")}
    (engine,) = images - own
    assert re.fullmatch(rf"{ENGINE}@sha256:[0-9a-f]{{64}}", engine)
    folder = shutil.copytree(DEPLOYMENT / "builder", tmp_path / "builder")
    file = folder / "kustomization.yaml"
    digest = f"sha256:{'0' * 64}"
    file.write_text(re.sub(r"newTag: [\w.-]+", f"digest: '{digest}'", file.read_text()))
    images = set(re.findall(r"image: (\S+)", cluster.kubectl("kustomize", str(folder))))
    assert images == {f"registry.example.com/edl/builder@{digest}", engine}, "ours can be pinned"


def test_policies_and_scraping_name_the_labels_and_ports_that_pods_have() -> None:
    rendered = list(
        yaml.safe_load_all((DEPLOYMENT / "namespace/network-policies.yaml").read_text())
    )
    role = {objects.LABEL_ROLE: objects.MASTER}
    (page,) = (one for one in rendered if one["metadata"]["name"] == "edl-pages")
    assert page["spec"]["podSelector"]["matchLabels"].items() >= role.items()
    assert page["spec"]["ingress"][0]["ports"][0]["port"] == objects.PAGE_PORT
    (inner,) = (one for one in rendered if one["metadata"]["name"] == "edl-masters-and-servers")
    ports = [one["port"] for one in inner["spec"]["ingress"][0]["ports"]]
    assert ports == [objects.MASTER_PORT, objects.STREAM_PORT]
    values = inner["spec"]["podSelector"]["matchExpressions"][0]["values"]
    assert values == [objects.MASTER, objects.SERVER]
    monitors = yaml.safe_load_all((DEPLOYMENT / "monitoring/pod-monitors.yaml").read_text())
    selected = {one["metadata"]["name"]: one["spec"]["selector"]["matchLabels"] for one in monitors}
    assert selected["edl-masters"].items() >= role.items()
    built = yaml.safe_load((DEPLOYMENT / "builder/kustomization.yaml").read_text())
    assert selected["edl-builder"].items() <= built["labels"][0]["pairs"].items()
    scraping = (DEPLOYMENT / "monitoring/scrape-config.yaml").read_text()
    assert f"{objects.LABEL_ROLE}={objects.MASTER}" in scraping
    ((label, value),) = selected["edl-builder"].items()
    assert f"label: {label}={value}\n" in scraping
    assert objects.MASTER_ACCOUNT == MASTER
