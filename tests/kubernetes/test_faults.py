"""What a cluster does to a job: no record is lost or repeated, and the events name the causes.

Several faults share one job: most of its time is the start of pods. ``./dev chaos --platform
kubernetes`` does the same ones at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cluster.cluster import Cluster
from counting_job import CountingJob
from faults import BY_NAME, FAULTS, Schedule, kill

from edl_kubernetes.cluster import objects

MakeJob = Callable[..., CountingJob]
RECORDS = 12_000
RECORD_S = 0.1
"""A held job of two workers takes 20 minutes."""

MORE = 40
"""Records that take the worker that is left four seconds."""


@pytest.fixture
def make_job(cluster: Cluster, tmp_path: Path) -> Iterator[MakeJob]:
    made: list[CountingJob] = []

    def make(namespace: str, **options: Any) -> CountingJob:
        job = CountingJob(
            cluster, namespace, tmp_path / namespace, records=RECORDS, record_s=RECORD_S, **options
        )
        made.append(job)
        job.wait_for_training()
        return job

    yield make
    for each in made:
        each.close()


def inject(job: CountingJob, fault: str, says: str = "") -> None:
    """Do it while all pods are at work; wait until an event says the cause."""
    job.wait_for_training()
    job.wait_for_workers()
    before = len(job.events())
    assert BY_NAME[fault].inject(job, Random(7)), "the fault finds a target"
    if says:
        job.wait(
            lambda: any(says in event for event in job.events()[before:]), f"{says!r} after {fault}"
        )


def cut_off_from_the_api_server(job: CountingJob) -> None:
    """A worker is killed during the outage: the other one goes on, and the end is seen later."""
    job.wait_for_training()
    job.wait_for_workers()
    victim = job.pod(objects.WORKER)
    before, trained = len(job.events()), job.trained
    job.cluster.stop_api_server()
    try:
        kill(job, victim)
        job.wait(lambda: job.trained >= trained + MORE, "training goes on")
        assert not any("signal 9" in event for event in job.events()[before:]), "not seen yet"
    finally:
        job.cluster.start_api_server()
    job.wait(lambda: any("signal 9" in event for event in job.events()[before:]), "the end is seen")


def test_chaos_does_each_fault_once_before_it_draws_by_weight() -> None:
    schedule, skipped = Schedule(FAULTS, Random(3)), BY_NAME["parameter-server evict"]
    schedule.begin_job()
    first = [schedule.draw() for _ in FAULTS]
    assert set(first) == set(FAULTS)
    for fault in first:
        if fault != skipped:  # the first job has no parameter server
            schedule.note_done(fault)
    assert schedule.to_do == [skipped]
    assert skipped not in [schedule.draw() for _ in range(3)], "it would find no target again"
    schedule.begin_job()
    assert schedule.draw() == skipped
    again = Schedule(FAULTS, Random(3))
    again.begin_job()
    assert [again.draw() for _ in FAULTS] == first, "the seed gives the order"


def test_a_job_counts_each_record_once_whatever_the_cluster_does(make_job: MakeJob) -> None:
    job = make_job("fault-pods", servers=1)
    inject(job, "node drain")
    inject(job, "master kill in a snapshot")
    inject(job, "parameter-server delete", "the job is rolled back")
    cut_off_from_the_api_server(job)
    inject(job, "workers pre-empt", "a pod of higher priority took its place")
    inject(job, "node lose")
    inject(job, "master orphan")
    job.release()
    job.check()
    status = job.record()
    # A worker each was drained, preempted, and on the node that was lost, perhaps with the master.
    assert status["preemptions"] >= 3, job.events()
    assert status["worker_failures"] >= 1, "one was killed"
