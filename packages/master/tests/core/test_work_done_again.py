"""Of the leases that a worker loses, only the one that it worked on is done again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.job_settings import TIMINGS, job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, TaskType, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType

WORKER, INSTANCE, NEXT = WorkerId(0), InstanceId("0a"), InstanceId("0b")
SETTINGS = job_settings(JobType.PREDICT, records_per_task=4)
BUSY_S = 3.0
Held = tuple[ev.HeldLease, ...]
Lose = Callable[[JobStateMachine, Held], float]


def join(job: JobStateMachine, instance: InstanceId, now: float) -> None:
    job.handle(ev.WorkerRegistered(WORKER, instance, "host", 1), now)
    job.handle(ev.WorkerReady(WORKER, instance), now)


def lease(job: JobStateMachine, instance: InstanceId, now: float) -> fx.LeaseGranted:
    (granted,) = job.handle(ev.LeaseRequested(WORKER, instance), now)
    assert isinstance(granted, fx.LeaseGranted)
    return granted


def return_all(job: JobStateMachine, held: Held) -> float:
    job.handle(ev.LeasesReturned(WORKER, held, "asked", False, instance=INSTANCE), BUSY_S)
    return BUSY_S


def return_one_twice(job: JobStateMachine, held: Held) -> float:
    return return_all(job, (held[0], held[0], *held[1:]))


def replace_instance(job: JobStateMachine, held: Held) -> float:
    join(job, NEXT, BUSY_S)
    return BUSY_S


def let_expire(job: JobStateMachine, held: Held) -> float:
    now = 0.0
    while job.view(now).tasks[TaskType.PREDICTION].leased:
        now += TIMINGS.heartbeat_every_s
        job.handle(ev.HeartbeatReceived(WORKER, INSTANCE, (), "computing"), now)
        job.handle(ev.Tick(), now)
    return now


@pytest.mark.parametrize("lose", [return_all, return_one_twice, replace_instance, let_expire])
def test_a_task_that_was_only_fetched_is_not_done_again(lose: Lose) -> None:
    job = JobStateMachine(SETTINGS, (12,))
    job.handle(ev.Tick(), 0.0)
    join(job, INSTANCE, 0.0)
    granted = [lease(job, INSTANCE, 0.0) for _ in range(3)]
    now = lose(job, tuple(ev.HeldLease(each.task, each.token) for each in granted))
    if lose is not replace_instance:
        join(job, NEXT, now)
    for _ in range(3):
        again = lease(job, NEXT, now)
        held = ev.HeldLease(again.task, again.token)
        job.handle(ev.TaskCompleted(WORKER, held, 0, 0, records=4, examples=4), now)
    assert job.view(now).predictions == 12
    assert job.view(now).records_replayed == 4
