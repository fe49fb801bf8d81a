"""Preemptions and failures are counted once each, however many masters a job has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.interruption import Interruption, WorkersSeen
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType

SETTINGS = job_settings(JobType.TRAIN, records_per_task=4, minibatch_size=2, max_workers=2)
DATA = (16,)
FIRST, SECOND = WorkerId(0), WorkerId(1)


def begin(job: JobStateMachine) -> JobStateMachine:
    """The job with two workers at work."""
    job.handle(ev.Tick(), 0.0)
    for worker in (FIRST, SECOND):
        instance = InstanceId(f"{worker}a")
        job.handle(ev.WorkerRegistered(worker, instance, "host", 1), 0.0)
        job.handle(ev.WorkerReady(worker, instance), 0.0)
    return job


def save(job: JobStateMachine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(job.snapshot()))
    return found


def restore(snapshot: dict[str, Any], seen: WorkersSeen) -> JobStateMachine:
    return JobStateMachine.restore(
        SETTINGS, DATA, (), snapshot, interruption=Interruption(workers=seen)
    )


def counts(job: JobStateMachine) -> tuple[int, int]:
    view = job.view(0.0)
    return view.preemptions, view.worker_failures


def end_of(worker: WorkerId, *, preempted: bool) -> ev.InstanceExited:
    return ev.InstanceExited(worker, InstanceId(f"{worker}a"), None, 9, preempted, attempt=0)


def test_ends_after_the_last_snapshot_stay_counted() -> None:
    job = begin(JobStateMachine(SETTINGS, DATA))
    snapshot = save(job)
    job.handle(end_of(FIRST, preempted=True), 0.0)
    job.handle(end_of(SECOND, preempted=False), 0.0)
    assert counts(job) == (1, 1)

    again = restore(snapshot, WorkersSeen(*counts(job)))
    again.handle(ev.Tick(), 0.0)
    assert counts(again) == (1, 1)


def test_ends_stay_counted_when_the_job_begins_again() -> None:
    seen = WorkersSeen(3, 2)
    job = JobStateMachine(SETTINGS, DATA, interruption=Interruption(workers=seen))
    assert counts(begin(job)) == (3, 2)


def test_a_worker_that_ended_without_a_master_was_preempted() -> None:
    snapshot = save(begin(JobStateMachine(SETTINGS, DATA)))
    again = restore(snapshot, WorkersSeen(running={FIRST: 0, SECOND: 0}))
    again.handle(ev.InstanceFound(FIRST, InstanceId("0a"), 0), 0.0)
    effects = again.handle(ev.Tick(), 0.0)
    told = [each.message for each in effects if isinstance(each, fx.LogEvent)]
    assert "Worker 1 was preempted about when the master ended." in told
    assert fx.StartWorker(SECOND, 0) in effects
    assert counts(again) == (1, 0)
    again.handle(ev.Tick(), 1.0)
    assert counts(again) == (1, 0)


def test_a_worker_that_registers_before_it_is_found_has_not_ended() -> None:
    snapshot = save(begin(JobStateMachine(SETTINGS, DATA)))
    again = restore(snapshot, WorkersSeen(running={FIRST: 0, SECOND: 3}))
    for worker in (FIRST, SECOND):
        again.handle(ev.WorkerRegistered(worker, InstanceId(f"{worker}a"), "host", 1), 0.0)
    again.handle(ev.InstanceFound(SECOND, InstanceId("1a"), 3), 0.0)
    again.handle(ev.Tick(), 0.0)
    assert counts(again) == (0, 0)


def test_an_end_that_was_not_reported_any_more_is_counted_with_its_successor() -> None:
    """The master has started the next instance, and was killed before it wrote its status."""
    job = begin(JobStateMachine(SETTINGS, DATA))
    seen = WorkersSeen(running={FIRST: 0, SECOND: 0})
    job.handle(end_of(FIRST, preempted=True), 0.0)
    # A snapshot that is newer than the report has counted it already.
    again = restore(save(job), seen)
    again.handle(ev.InstanceFound(FIRST, InstanceId("0b"), 1), 0.0)
    again.handle(ev.InstanceFound(SECOND, InstanceId("1a"), 0), 0.0)
    again.handle(ev.Tick(), 0.0)
    assert counts(again) == (1, 0)


def test_an_instance_that_ends_when_it_has_been_found_is_counted_once() -> None:
    snapshot = save(begin(JobStateMachine(SETTINGS, DATA)))
    again = restore(snapshot, WorkersSeen(running={FIRST: 0}))
    again.handle(ev.InstanceFound(FIRST, InstanceId("0a"), 0), 0.0)
    again.handle(end_of(FIRST, preempted=True), 0.0)
    again.handle(ev.Tick(), 0.0)
    assert counts(again) == (1, 0)


def test_a_task_outlives_any_number_of_preemptions() -> None:
    job = begin(JobStateMachine(replace(SETTINGS, task_attempts=1), (4,)))
    for attempt in range(30):
        instance = InstanceId(f"0{'a' * (attempt + 1)}")
        if attempt:
            job.handle(ev.WorkerRegistered(FIRST, instance, "host", 1), 0.0)
            job.handle(ev.WorkerReady(FIRST, instance), 0.0)
        (granted,) = job.handle(ev.LeaseRequested(FIRST, instance), 0.0)
        assert isinstance(granted, fx.LeaseGranted)
        end = ev.InstanceExited(FIRST, instance, None, 9, True, attempt=attempt)
        job.handle(end, 0.0)
        job.handle(ev.Tick(), 31.0 * (attempt + 1))  # the longest delay of a restart
    view = job.view(0.0)
    assert (view.phase, view.preemptions, view.dead_letters) == ("running", 30, ())
