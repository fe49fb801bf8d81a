"""Masters in pods: a job loses and repeats no record, whatever the cluster does to its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster
from counting_job import CountingJob
from faults import delete, evict, force_delete, kill

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


def test_no_loss_of_a_master_delays_the_next_one_or_costs_a_worker(counting_job: MakeJob) -> None:
    """Kubernetes delays a pod whose index has failed before: so each master has a new index.

    While it is held, the job takes five minutes.
    """
    job = counting_job(records=3000, record_s=0.1)
    losses: tuple[Callable[[CountingJob, str], None], ...] = (delete, evict, kill, force_delete)

    def lose_master(number: int, lose: Callable[[CountingJob, str], None]) -> None:
        job.wait_for_training()
        annotations = job.pods(objects.MASTER)[0]["metadata"]["annotations"]
        assert annotations["batch.kubernetes.io/job-completion-index"] == str(number)
        assert annotations["batch.kubernetes.io/job-index-failure-count"] == "0"
        lose(job, job.pod(objects.MASTER))
        job.wait(lambda: job.term > number + 1, "the next master")

    job.wait(lambda: len(job.pods(objects.WORKER)) == 2, "both workers")
    pods = job.pods(objects.WORKER)
    commands = [pod["spec"]["containers"][0]["command"] for pod in pods]
    assert all("--identity" in command for command in commands), "the job is secured"
    for number, lose in enumerate(losses):
        lose_master(number, lose)
    job.wait_for_training()
    kept = {pod["metadata"]["uid"] for pod in job.pods(objects.WORKER)}
    assert kept == {pod["metadata"]["uid"] for pod in pods}, "each master has taken them over"
    job.release()
    job.check()
    assert job.batch_job()["status"]["failedIndexes"] == f"0-{len(losses) - 1}"


def test_all_pods_go_with_the_job(counting_job: MakeJob) -> None:
    job = counting_job(records=10_000, servers=1)  # enough to go on until the end
    job.wait_for_training()
    job.wait_for_workers()
    job.kubectl("delete", "job", job.object, "--wait=false")
    kinds = {
        "jobs": "/apis/batch/v1",
        "leases": "/apis/coordination.k8s.io/v1",
        **dict.fromkeys(("pods", "configmaps"), "/api/v1"),
    }
    job.wait(
        lambda: not any(job.find(kind, group) for kind, group in kinds.items()), "nothing is left"
    )


def test_a_job_whose_workers_cannot_start_says_why_and_ends(counting_job: MakeJob) -> None:
    job = counting_job(worker_spec={"priorityClassName": "missing"})
    job.wait(lambda: job.condition("Failed"), "the end")
    status = job.record()
    assert status["state"] == "FAILED"
    assert "missing" in status["error"]["what"]
    assert not job.pods(objects.WORKER)
