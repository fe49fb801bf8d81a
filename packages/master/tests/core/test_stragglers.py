"""A slow worker among fast ones costs its share of the speed, and at most a task of its own."""

from __future__ import annotations

import heapq

import pytest
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType, choose_records_per_task

MINIBATCH = 10
EPOCHS = 3


def seconds_to_train(step_s: list[float], records: int) -> tuple[float, float]:
    """Play a job whose workers take these seconds per minibatch.

    Returns:
        Seconds that it took, and seconds of the slowest worker's one task.
    """
    length = choose_records_per_task(records, MINIBATCH, len(step_s))
    settings = job_settings(
        JobType.TRAIN,
        records_per_task=length,
        minibatch_size=MINIBATCH,
        num_epochs=EPOCHS,
        max_workers=len(step_s),
        export=False,
    )
    job = JobStateMachine(settings, (records,))
    job.handle(ev.Tick(), 0.0)
    turns: list[tuple[float, int]] = []
    for number in range(len(step_s)):
        job.handle(ev.WorkerRegistered(WorkerId(number), InstanceId(f"b{number}"), "host", 1), 0.0)
        job.handle(ev.WorkerReady(WorkerId(number), InstanceId(f"b{number}")), 0.0)
        heapq.heappush(turns, (0.0, number))
    held: dict[int, tuple[fx.LeaseGranted, int]] = {}
    version = 0
    last = 0.0
    while turns:
        now, number = heapq.heappop(turns)
        worker, instance = WorkerId(number), InstanceId(f"b{number}")
        if number in held:
            lease, index = held[number]
            pair = ev.HeldLease(lease.task, lease.token)
            size = sum(part.stop - part.start for part in lease.records)
            minibatches = -(-size // MINIBATCH)
            version += 1
            job.handle(
                ev.MinibatchApplied(worker, pair, MINIBATCH, Version(version), 1.0, 0),
                now,
            )
            held[number] = lease, index + 1
            last = now
            if index + 1 == minibatches:
                del held[number]
                job.handle(
                    ev.TaskCompleted(worker, pair, minibatches, minibatches, size, size), now
                )
        if number not in held:
            effects = job.handle(ev.LeaseRequested(worker, instance), now)
            granted = [effect for effect in effects if isinstance(effect, fx.LeaseGranted)]
            if not granted:
                continue  # nothing is left for this one
            held[number] = granted[0], 0
        heapq.heappush(turns, (now + step_s[number], number))
    view = job.view(last)
    assert view.records_trained == EPOCHS * records
    return last, max(step_s) * length / MINIBATCH


@pytest.mark.parametrize(
    ("workers", "slowness"),
    [(2, 1.0), (2, 3.0), (2, 10.0), (16, 1.0), (16, 3.0), (16, 10.0), (60, 10.0)],
)
def test_a_straggler_costs_no_more_than_its_share_and_one_task(
    workers: int, slowness: float
) -> None:
    steps = [0.1] * (workers - 1) + [0.1 * slowness]
    records = 640 * MINIBATCH * workers
    took_s, its_task_s = seconds_to_train(steps, records)
    best_s = EPOCHS * records / MINIBATCH / sum(1 / step for step in steps)
    assert took_s <= best_s * 1.02 + its_task_s
