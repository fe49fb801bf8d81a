"""Masters in pods: a job loses and repeats no record, whatever the cluster does to its pods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster
from counting_job import CountingJob

from edl_proto.kubernetes import objects

MakeJob = Callable[..., CountingJob]


@pytest.fixture
def counting_job(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MakeJob]:
    made: list[CountingJob] = []

    def make(**options: Any) -> CountingJob:
        namespace = f"job-{abs(hash(request.node.name)):x}"
        made.append(CountingJob(cluster, namespace, tmp_path / "job", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("how", [("--grace-period=30",), ("--grace-period=0", "--force")])
def test_a_deleted_master_is_followed_by_another_one_that_keeps_the_workers(
    counting_job: MakeJob, how: tuple[str, ...]
) -> None:
    job = counting_job()
    job.wait_for_training()
    workers = {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER)}
    epoch = job.epoch
    job.kubectl("delete", "pod", job.pod(objects.MASTER), "--wait=false", *how)
    job.wait(lambda: job.epoch > epoch, "the next master")
    job.wait_for_training()
    assert {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER)} == workers
    job.release()
    job.check()


@pytest.mark.parametrize("servers", [0, 2])
def test_pods_of_any_role_may_be_deleted_and_evicted(counting_job: MakeJob, servers: int) -> None:
    job = counting_job(servers=servers, records=1500)
    job.wait_for_training()
    job.kubectl(
        *("delete", "pod", job.pod(objects.WORKER), "--wait=false", "--grace-period=0", "--force")
    )
    job.wait_for_training()
    evict(job, job.pod(objects.WORKER))
    if servers:
        epoch = job.epoch
        job.kubectl("delete", "pod", job.pod(objects.SERVER), "--wait=false", "--grace-period=1")
        job.wait(lambda: job.epoch > epoch, "the roll-back")
    job.wait_for_training()
    job.release()
    job.check()
    status = job.record()
    assert int(status["preemptions"]) >= 1
    assert not int(status["worker_failures"]), "nothing that the cluster did is a failure"


def test_training_goes_on_while_no_api_server_answers(counting_job: MakeJob) -> None:
    job = counting_job(records=3000)
    job.wait_for_training()
    workers = {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER)}
    before = job.trained
    job.cluster.stop_api_server()
    job.wait(lambda: job.trained > before + 200, "training without an API server")
    job.release()
    job.wait(lambda: job.status().get("progress", {}).get("records_done") == "6000", "the end")
    time.sleep(5)  # the result waits for the confirmation of the epoch, however long that takes
    assert not (job.folder / "model").exists()
    job.cluster.start_api_server()
    job.check()
    assert {"WorkerLost", "WorkerPreempted"}.isdisjoint(job.event_kinds()), workers


def test_a_job_whose_workers_cannot_start_says_why_and_ends(counting_job: MakeJob) -> None:
    job = counting_job(worker_spec={"priorityClassName": "missing"})
    job.wait(lambda: job.condition("Failed"), "the end")
    status = job.record()
    assert status["state"] == "FAILED"
    assert "missing" in status["error"]["what"]
    assert not job.pods(objects.WORKER)


def test_workers_without_a_place_wait_and_the_others_work(counting_job: MakeJob) -> None:
    """The anti-affinity lets one worker run on each of the two nodes."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {objects.LABEL_ROLE: objects.WORKER}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    job = counting_job(workers=(1, 3), held=False, worker_spec={"affinity": apart})
    job.check()
    lines = (job.folder / "state" / job.name / "events.jsonl").read_text()
    assert "WorkerPending" in lines
    assert "didn't match pod anti-affinity rules" in lines, "the scheduler's own sentence"


def evict(job: CountingJob, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": job.namespace},
    }
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    job.kubectl("create", "--raw", path, "-f-", stdin=json.dumps(eviction))
