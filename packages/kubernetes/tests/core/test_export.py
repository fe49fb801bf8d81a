"""The objects of a job that exports, made from those of another one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from edl.core.options import Given, Verb
from edl.core.submission import Submission, build
from edl_kubernetes.cluster import objects
from edl_kubernetes.core import export, manifest, pods
from edl_kubernetes.core.pods import PodTemplates

NONE = PodTemplates()


def job(**flags: Any) -> Submission:
    values: dict[str, Any] = {
        "model_zoo": "zoo",
        "model_def": "mine",
        "data": "s3://bucket/train",
        "output": "/files/model",
        "platform": "kubernetes",
        "name": "digits",
        "image": "registry.example.com/zoo@sha256:" + "a" * 64,
        "volumes": ("claim/files:/files", "claim/data:/data:ro", "configmap/c:/c"),
        "labels": "team=vision",
        "env": "A=b",
        **flags,
    }
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(Verb.TRAIN, given, cwd="/work", environ={})


def in_cluster(submission: Submission) -> Any:
    """The Job as Kubernetes gives it back, once it is over."""
    made = manifest.job_object(submission, "team", NONE, suspended=False)
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    made["metadata"].setdefault("annotations", {})[objects.ANNOTATION_STOPPED] = "by me"
    made["spec"] |= {"backoffLimit": 0, "selector": {"matchLabels": {}}}
    made["spec"]["template"]["metadata"]["labels"] |= {
        "batch.kubernetes.io/controller-uid": "u",
        "controller-uid": "u",
        "batch.kubernetes.io/job-name": "edl-digits",
        "job-name": "edl-digits",
    }
    made["status"] = {"conditions": []}
    return made


@pytest.mark.parametrize("volume", ["10Gi", "mine"])
def test_the_job_is_a_copy_with_its_own_secrets_and_the_same_claim(volume: str) -> None:
    found = in_cluster(job(state_volume=volume, delete_after="2h"))
    before = copy.deepcopy(found)
    made = export.job_object(found, "digits-export")
    assert made["spec"].pop("ttlSecondsAfterFinished") == 7200, "it is kept as long as the other"
    assert found == before
    wanted = manifest.job_object(
        job(name="digits-export", state_volume="mine"), "team", NONE, suspended=True
    )
    claim = "edl-digits" if volume == "10Gi" else "mine"
    for each in wanted["spec"]["template"]["spec"]["volumes"]:
        if each["name"] == "edl-state":
            each["persistentVolumeClaim"]["claimName"] = claim
    wanted["spec"]["template"]["metadata"].setdefault("annotations", {})
    assert made == wanted
    assert not export.is_queued(made)


def test_a_worker_has_an_identity_of_the_new_job() -> None:
    found = pods.worker_pod(job(), NONE)
    made = export.worker_pod(found, "digits-export")
    assert made == pods.worker_pod(job(name="digits-export"), NONE)
    assert "digits-export" in json.dumps(made)


def test_outputs_go_to_claims_that_may_be_written() -> None:
    assert export.mounted_folders(pods.worker_pod(job(), NONE)) == ["/files"]


def test_a_job_of_a_queue_waits_for_it_again() -> None:
    label = f"{manifest.QUEUE_LABEL}=training"
    made = export.job_object(in_cluster(job(labels=label)), "digits-export")
    assert export.is_queued(made)
