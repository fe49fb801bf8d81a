"""Masters in pods: a job loses and repeats no record, whatever the cluster does to its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cluster.cluster import Cluster
from counting_job import CountingJob
from faults import delete, drain, evict, force_delete, kill

from edl_kubernetes.cluster import objects

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


def test_no_loss_of_a_master_delays_the_next_one(counting_job: MakeJob) -> None:
    """Kubernetes delays a pod whose index has failed before: so each master has a new index."""
    job = counting_job(records=2000)
    losses: tuple[Callable[[CountingJob, str], None], ...] = (delete, evict, kill, force_delete)

    def lose_master(number: int, lose: Callable[[CountingJob, str], None]) -> None:
        job.wait_for_training()
        annotations = job.pods(objects.MASTER)[0]["metadata"]["annotations"]
        assert annotations["batch.kubernetes.io/job-completion-index"] == str(number)
        assert annotations["batch.kubernetes.io/job-index-failure-count"] == "0"
        lose(job, job.pod(objects.MASTER))
        job.wait(lambda: job.term > number + 1, "the next master")

    for number, lose in enumerate(losses):
        lose_master(number, lose)
    job.wait_for_training()
    job.release()
    job.check()
    assert job.batch_job()["status"]["failedIndexes"] == f"0-{len(losses) - 1}"


def test_a_drain_needs_no_force_and_all_pods_go_with_the_job(counting_job: MakeJob) -> None:
    job = counting_job(records=10_000, servers=1)  # enough for a drain that takes minutes
    job.wait_for_training()
    job.wait_for_workers()
    assert drain(job, Random(7))
    job.wait_for_training()
    job.kubectl("delete", "job", job.object, "--wait=false")
    kinds = "jobs,pods,leases,configmaps"
    labels = f"--selector={objects.LABEL_JOB}={job.name}"
    job.wait(lambda: not job.kubectl("get", kinds, labels, "--output=name"), "nothing is left")


@pytest.mark.parametrize("how", [("--grace-period=30",), ("--grace-period=0", "--force")])
def test_a_deleted_master_is_followed_by_another_one_that_keeps_the_workers(
    counting_job: MakeJob, how: tuple[str, ...]
) -> None:
    job = counting_job(records=2000)
    job.wait_for_training()
    pods = job.pods(objects.WORKER)
    workers = {pod["metadata"]["uid"] for pod in pods}
    commands = [pod["spec"]["containers"][0]["command"] for pod in pods]
    assert all("--identity" in command for command in commands), "the job is secured"
    term = job.term
    job.kubectl("delete", "pod", job.pod(objects.MASTER), "--wait=false", *how)
    job.wait(lambda: job.term > term, "the next master")
    job.wait_for_training()
    assert {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER)} == workers
    job.release()
    job.check()


def test_a_job_whose_workers_cannot_start_says_why_and_ends(counting_job: MakeJob) -> None:
    job = counting_job(worker_spec={"priorityClassName": "missing"})
    job.wait(lambda: job.condition("Failed"), "the end")
    status = job.record()
    assert status["state"] == "FAILED"
    assert "missing" in status["error"]["what"]
    assert not job.pods(objects.WORKER)
