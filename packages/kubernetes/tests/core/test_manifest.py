"""The objects of a job on Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core import names
from edl.core.options import Given, Verb
from edl.core.problem import Problem
from edl.core.submission import Submission, build
from edl_kubernetes.cluster import objects
from edl_kubernetes.core import manifest, pods
from edl_kubernetes.core.pods import PodTemplates
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.identity.page_key import PAGES, PageKey
from edl_runtime.local.process_environment import THREADS

IMAGE = "registry.example.com/zoo@sha256:" + "a" * 64
NONE = PodTemplates()


def job(**flags: Any) -> Submission:
    values: dict[str, Any] = {
        "model_zoo": "zoo",
        "model_def": "mine",
        "data": "s3://bucket/train",
        "output": "s3://bucket/model",
        "platform": "kubernetes",
        "name": "digits",
        "image": IMAGE,
        **flags,
    }
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(Verb.TRAIN, given, cwd="/work", environ={})


def container(pod: Any) -> Any:
    (found,) = pod["spec"]["containers"]
    return found


def all_pods(submission: Submission) -> list[Any]:
    return [
        pods.master_pod(submission, NONE),
        pods.worker_pod(submission, NONE),
        pods.server_pod(submission, NONE),
    ]


def test_every_pod_satisfies_the_restricted_level_and_writes_only_to_volumes() -> None:
    for pod in all_pods(job()):
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        own = container(pod)["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["readOnlyRootFilesystem"]
        assert "/tmp" in [mount["mountPath"] for mount in container(pod)["volumeMounts"]]
        for volume in pod["spec"]["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "secret", "persistentVolumeClaim"}


def test_only_the_master_gets_a_token() -> None:
    master, *others = all_pods(job())
    assert master["spec"]["serviceAccountName"] == objects.MASTER_ACCOUNT
    assert "automountServiceAccountToken" not in master["spec"]
    assert [pod["spec"]["automountServiceAccountToken"] for pod in others] == [False, False]
    assert "serviceAccountName" not in others[0]["spec"]


def test_every_object_has_the_labels_of_edl_and_of_the_user() -> None:
    made = manifest.manifest(job(labels="team=a", ingress="{name}.example.com"), "ns", "{}", NONE)
    kinds = ["Secret", "Service", "Ingress", "Secret", "Secret", "Job"]
    assert [item["kind"] for item in made["items"]] == kinds
    for item in (*made["items"], made["items"][-1]["spec"]["template"]):
        labels = item["metadata"]["labels"]
        assert labels["team"] == "a"
        role = objects.MASTER if ".workers" not in item["metadata"].get("name", "") else "worker"
        assert labels.items() >= objects.labels("digits", role).items()
    named = [item["metadata"]["name"].removeprefix("edl-digits") for item in made["items"]]
    assert named == ["", "", "", ".authority", ".workers-0", ""]
    assert {item["metadata"]["namespace"] for item in made["items"]} == {"ns"}


def test_an_ingress_publishes_the_page_and_nothing_else_of_its_port() -> None:
    def ingress(**more: str) -> JsonObject:
        listed = manifest.manifest(job(ingress="{name}.{namespace}.org", **more), "ns", "{}", NONE)
        (made,) = (item for item in listed["items"] if item["kind"] == "Ingress")
        found: JsonObject = made["spec"]
        return found

    (rule,) = ingress()["rules"]
    assert rule["host"] == "digits.ns.org"
    paths = {(path["path"], path["pathType"]) for path in rule["http"]["paths"]}
    assert paths == {("/", "Exact"), (PAGES, "Prefix")}
    assert PageKey.create().home.startswith(f"{PAGES}/")
    assert not any(each.startswith(PAGES) for each in ("/metrics", "/healthz", "/readyz"))
    assert "ingressClassName" not in ingress()
    assert ingress(ingress_class="inner")["ingressClassName"] == "inner"


def test_a_pod_mounts_what_proves_its_own_identity_alone() -> None:
    for pod, secret, items in zip(
        all_pods(job()),
        ("edl-digits.authority", "edl-digits.workers-0", "edl-digits.parameter-servers-0"),
        (("authority.pem",) * 2, ("0.pem", "identity.pem"), ("0.pem", "identity.pem")),
        strict=True,
    ):
        (source,) = (
            it["secret"] for it in pod["spec"]["volumes"] if it["name"] == objects.IDENTITY_VOLUME
        )
        key, path = items
        assert source["secretName"] == secret
        # With items, a pod waits for its key; without, it would start without an identity.
        assert source["items"] == [{"key": key, "path": path}]
        assert source["defaultMode"] == 0o400
        (mount,) = (
            it for it in container(pod)["volumeMounts"] if it["name"] == objects.IDENTITY_VOLUME
        )
        assert mount["readOnly"]


def test_identities_come_in_whole_blocks_and_are_shown_without_their_keys() -> None:
    submission = job(num_workers="1:65", parameter_servers=2)
    wanted = {
        "edl-digits.authority": (),
        "edl-digits.workers-0": range(64),
        "edl-digits.workers-1": range(64, 128),
        "edl-digits.parameter-servers-0": range(64),
    }
    made = manifest.identity_objects(
        submission, "ns", lambda it: {objects.identity_key(n): "PEM" for n in it.numbers}
    )
    assert {item["metadata"]["name"]: item["stringData"] for item in made} == {
        name: {f"{number}.pem": "PEM" for number in numbers} for name, numbers in wanted.items()
    }
    shown = manifest.manifest(submission, "ns", "{}", NONE)["items"]
    secrets = [it for it in shown if it["metadata"]["name"] in wanted]
    assert len(secrets) == len(wanted)
    for secret in secrets:
        assert not {"data", "stringData"} & secret.keys()
        assert secret["metadata"]["annotations"] == {"edl/content": "made at submission"}


def test_no_job_has_the_secret_of_another_one() -> None:
    own = {it["metadata"]["name"] for it in manifest.identity_objects(job(), "ns")}
    other = job(name="digits-authority")
    assert not own & {it["metadata"]["name"] for it in manifest.owned_objects(other, "ns", "{}")}


def test_a_master_is_ready_when_it_listens_because_the_kubelet_has_no_identity() -> None:
    probe = container(pods.master_pod(job(), NONE))["readinessProbe"]
    assert probe["tcpSocket"] == {"port": "grpc"}


def test_the_job_starts_one_master_after_another_until_one_succeeds() -> None:
    own = manifest.job_object(job(), "ns", NONE, suspended=True)["spec"]
    assert own["suspend"] is True
    assert (own["parallelism"], own["completionMode"]) == (1, "Indexed")
    assert own["backoffLimitPerIndex"] == 0, "each master has an index of its own"
    assert own["backoffLimit"] == 2**31 - 1
    assert own["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    assert own["podReplacementPolicy"] == "TerminatingOrFailed"
    assert own["template"]["spec"]["restartPolicy"] == "Never"


def test_a_job_is_deleted_after_its_end_only_if_that_is_asked_for() -> None:
    asked = manifest.job_object(job(delete_after="2h"), "ns", NONE, suspended=False)
    assert asked["spec"]["ttlSecondsAfterFinished"] == 7200
    never = manifest.job_object(job(), "ns", NONE, suspended=False)
    assert "ttlSecondsAfterFinished" not in never["spec"]


def test_the_hostnames_of_masters_fit_into_a_label() -> None:
    """Kubernetes refuses an indexed Job whose last pod would have too long a hostname."""
    own = manifest.job_object(job(name="x" * names.MAX_LENGTH), "ns", NONE, suspended=True)
    assert len(f"{own['metadata']['name']}-{own['spec']['completions'] - 1}") <= 63


def test_the_service_selects_the_master_alone() -> None:
    secret, service = manifest.owned_objects(job(), "ns", "{}", {"page-key": "k"})
    assert secret["stringData"] == {"spec.json": "{}", "page-key": "k"}
    labels = pods.master_pod(job(), NONE)["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    worker = pods.worker_pod(job(), NONE)["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= worker.items()


@pytest.mark.parametrize(
    ("option", "kinds", "volume"),
    [
        ({}, [], {"emptyDir": {}}),
        ({"state_volume": "mine"}, [], {"persistentVolumeClaim": {"claimName": "mine"}}),
        (
            {"state_volume": "20Gi:fast"},
            ["PersistentVolumeClaim"],
            {"persistentVolumeClaim": {"claimName": "edl-digits"}},
        ),
    ],
)
def test_the_state_is_where_the_option_says(option: Any, kinds: Any, volume: Any) -> None:
    made = manifest.owned_objects(job(**option), "ns", "{}")
    assert [item["kind"] for item in made] == ["Secret", "Service", *kinds]
    if kinds:
        assert made[-1]["spec"]["storageClassName"] == "fast"
        assert made[-1]["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    found = pods.master_pod(job(**option), NONE)["spec"]["volumes"]
    assert {"name": "edl-state", **volume} in found


def test_memory_and_devices_are_limited_and_processor_time_only_if_asked() -> None:
    wanted = "cpu=4,memory=8Gi,nvidia.com/gpu=1"
    made = container(pods.worker_pod(job(worker_resources=wanted), NONE))["resources"]
    assert made["requests"] == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    assert made["limits"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    made = container(pods.worker_pod(job(worker_resources="cpu=1,limits.cpu=2"), NONE))
    assert made["resources"]["limits"] == {"cpu": "2"}


def test_workers_have_a_thread_for_each_processor_of_their_limit_or_what_the_user_says() -> None:
    limit = {"resourceFieldRef": {"resource": "limits.cpu"}}
    every = {name: {"name": name, "valueFrom": limit} for name in THREADS}

    def threads(made: Any) -> dict[str, Any]:
        return {it["name"]: it for it in container(made)["env"] if it["name"] in THREADS}

    assert threads(pods.worker_pod(job(), NONE)) == every
    assert threads(pods.master_pod(job(), NONE)) == {}
    own = {"name": "OMP_NUM_THREADS", "value": "3"}
    assert threads(pods.worker_pod(job(env=["OMP_NUM_THREADS=3"]), NONE)) == {own["name"]: own}
    template = {"spec": {"containers": [{"name": objects.CONTAINER, "env": [own]}]}}
    merged = pods.worker_pod(job(), PodTemplates({}, template))
    assert threads(merged) == {own["name"]: own}


def test_sets_have_the_same_order_in_all_workers_unless_the_user_says_another_one() -> None:
    def seeds(made: Any) -> list[str]:
        return [it["value"] for it in container(made)["env"] if it["name"] == "PYTHONHASHSEED"]

    assert seeds(pods.worker_pod(job(), NONE)) == ["0"]
    assert seeds(pods.worker_pod(job(env=["PYTHONHASHSEED=7"]), NONE)) == ["7"]


def test_a_master_does_not_stay_on_a_node_that_is_unreachable() -> None:
    for role, pod in zip(("master", "worker", "server"), all_pods(job()), strict=True):
        ready, reachable = pod["spec"]["tolerations"]
        assert (ready["key"], ready["tolerationSeconds"]) == ("node.kubernetes.io/not-ready", 30)
        assert reachable["key"] == "node.kubernetes.io/unreachable"
        assert reachable["tolerationSeconds"] == (0 if role == "master" else 30)


def test_options_of_pods_reach_every_pod() -> None:
    submission = job(
        node_selector="pool=gpu",
        tolerations=["gpu=yes:NoSchedule", "spot"],
        volumes=["claim/data:/data", "secret/keys:/keys"],
        env=["A=b=c"],
        env_from=["secret/s3"],
        image_pull_secrets="login",
        annotations="note=x y",
        priority_class="high",
    )
    for pod in all_pods(submission):
        spec, own = pod["spec"], container(pod)
        assert spec["nodeSelector"] == {"pool": "gpu"}
        assert spec["tolerations"][2:] == [
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
        ]
        assert {"name": "volume-0", "mountPath": "/data"} in own["volumeMounts"]
        assert {"name": "volume-1", "mountPath": "/keys", "readOnly": True} in own["volumeMounts"]
        assert {"name": "A", "value": "b=c"} in own["env"]
        assert own["envFrom"] == [{"secretRef": {"name": "s3"}}]
        assert spec["imagePullSecrets"] == [{"name": "login"}]
        assert pod["metadata"]["annotations"]["note"] == "x y"
    priorities = [pod["spec"].get("priorityClassName") for pod in all_pods(submission)]
    assert priorities == ["high", None, "high"]


@pytest.mark.parametrize(("given", "form"), [(["A=b"], "json"), (["EDL_LOG_FORMAT=text"], "text")])
def test_logs_of_pods_are_json_unless_the_user_wants_text(given: list[str], form: str) -> None:
    for pod in all_pods(job(env=given)):
        found = [it for it in container(pod)["env"] if it["name"] == "EDL_LOG_FORMAT"]
        assert found == [{"name": "EDL_LOG_FORMAT", "value": form}]


def test_one_priority_class_of_workers_is_in_the_pod_and_a_mix_is_not() -> None:
    assert pods.worker_pod(job(worker_priority_class="low"), NONE)["spec"]["priorityClassName"] == (
        "low"
    )
    mixed = job(worker_priority_class="high=2,low=rest")
    assert "priorityClassName" not in pods.worker_pod(mixed, NONE)["spec"]
    assert [(it.name, it.workers) for it in pods.worker_priorities(mixed)] == [
        ("high", 2),
        ("low", None),
    ]


def test_templates_are_merged_last_and_that_of_workers_only_into_theirs() -> None:
    both = PodTemplates(
        {"spec": {"schedulerName": "mine"}}, {"spec": {"runtimeClassName": "nvidia"}}
    )
    worker, server = pods.worker_pod(job(), both), pods.server_pod(job(), both)
    assert (worker["spec"]["schedulerName"], server["spec"]["schedulerName"]) == ("mine", "mine")
    assert worker["spec"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in server["spec"]


@pytest.mark.parametrize(
    ("flags", "suspended"),
    [({}, False), ({"suspend": True}, True), ({"labels": f"{manifest.QUEUE_LABEL}=team"}, True)],
)
def test_a_job_that_a_queue_releases_stays_suspended(flags: Any, suspended: bool) -> None:
    assert manifest.is_queued(job(**flags)) is suspended
    shown = manifest.manifest(job(**flags), "ns", "{}", NONE)["items"][-1]
    assert shown["spec"]["suspend"] is suspended


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("service_account", "../../secrets/x"),
        ("worker_service_account", "a/b"),
        ("priority_class", "High"),
        ("image_pull_secrets", "one,../x"),
        ("state_volume", "20Gi:"),
        ("state_volume", "Claim"),
        ("worker_resources", "cpu=lots"),
        ("worker_resources", "cpu"),
        ("worker_resources", "cpu=1,cpu=2"),
        ("tolerations", "gpu:Never"),
        ("volumes", "disk/x:/data"),
        ("volumes", "claim/x:data"),
        ("volumes", "claim/x:/data:rw"),
        ("env", "novalue"),
        ("env", "EDL_POD_NAME=x"),
        ("env_from", "s3"),
        ("labels", "a=b c"),
        ("labels", "app.kubernetes.io/instance=other"),
        ("annotations", "edl/stopped=x"),
        ("worker_priority_class", "high=2,low=3"),
        ("worker_priority_class", "high=rest,low=rest"),
        ("ingress", "jobs.example.com"),
        ("ingress_class", "Inner Class"),
    ],
)
def test_wrong_values_are_refused_with_a_remedy(option: str, value: str) -> None:
    with pytest.raises(Problem) as caught:
        job(**{option: value})
    assert f"--{option.replace('_', '-')}" in str(caught.value)
    assert "For example" in caught.value.remedy


@pytest.mark.parametrize(
    ("option", "value"),
    [("namespace", "x"), ("worker_resources", "cpu=1"), ("volumes", "claim/a:/a")],
)
def test_options_of_clusters_need_the_platform(option: str, value: str) -> None:
    with pytest.raises(Problem, match="has no effect without --platform kubernetes"):
        job(platform="processes", **{option: value})


def test_a_class_of_ingress_controllers_needs_an_ingress() -> None:
    with pytest.raises(Problem, match="--ingress-class has no effect without --ingress"):
        job(ingress_class="inner")
