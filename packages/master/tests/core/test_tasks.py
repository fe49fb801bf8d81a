"""Tasks cover the data exactly, and no list of them exists anywhere."""

from __future__ import annotations

import json
import sys
from types import FunctionType, MethodType, ModuleType

import pytest
from fakes.job_settings import job_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.effects import LeaseGranted
from edl_master.core.events import (
    LeaseRequested,
    TaskCompleted,
    Tick,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.identifiers import HeldLease, InstanceId, TaskType, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.mixing import Mixing
from edl_master.core.settings import JobType, choose_records_per_task
from edl_master.core.tasks import Round, TaskPartition

files = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(tuple)

at_leisure = settings(deadline=None)


@at_leisure
@given(files=files, per_task=st.integers(1, 60))
def test_ranges_follow_each_other_and_cover_every_record(
    files: tuple[int, ...], per_task: int
) -> None:
    partition = TaskPartition(files, per_task)
    covered = [
        (r.file, record)
        for r in map(partition.range, range(partition.count))
        for record in range(r.start, r.stop)
    ]
    assert covered == [(f, record) for f, records in enumerate(files) for record in range(records)]
    assert all(
        0 < r.stop - r.start <= per_task for r in map(partition.range, range(partition.count))
    )


@at_leisure
@given(records=st.integers(1, 10**9), minibatch=st.integers(1, 1024), workers=st.integers(0, 200))
def test_chosen_tasks_are_whole_minibatches(records: int, minibatch: int, workers: int) -> None:
    chosen = choose_records_per_task(records, minibatch, workers)
    assert chosen % minibatch == 0
    assert minibatch <= chosen <= 64 * minibatch
    assert chosen < records + minibatch, "no more than there is"
    if chosen > minibatch * (1 if workers > 1 else 16):
        assert records // chosen >= 4 * workers, "small data still spreads"


@pytest.mark.parametrize(
    ("records", "workers", "minibatches"),
    [(117, 1, 15), (300, 1, 16), (800, 1, 25), (9000, 1, 64), (117, 2, 1), (300, 2, 4)],
)
def test_the_only_worker_does_not_begin_a_task_every_few_steps(
    records: int, workers: int, minibatches: int
) -> None:
    assert choose_records_per_task(records, 8, workers) == 8 * minibatches


def test_a_round_reopened_from_a_snapshot_goes_on_where_it_was() -> None:
    partition = TaskPartition((10,), 2)
    before = Round(TaskType.TRAINING, 0, partition)
    first, second, third = before.take_new(), before.take_new(), before.take_new()
    for task in (first, second, third):
        task.leases = 1
    before.close(second, dead=False)
    third.minibatches, third.failures = 1, 2
    after = Round(TaskType.TRAINING, 0, partition)
    after.restore(json.loads(json.dumps(before.snapshot())))
    assert after == before


def a_huge_job(records: int, mixing: Mixing | None) -> JobStateMachine:
    settings = job_settings(JobType.TRAIN, records_per_task=1000, mixing=mixing)
    return JobStateMachine(settings, (records - 7, 7))


def weigh(root: object) -> int:
    """Bytes of everything that an object holds on to, code aside."""
    seen: set[int] = set()
    stack, total = [root], 0
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, MethodType):
            stack.append(thing.__self__)
        elif isinstance(thing, dict):
            stack += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (str, bytes)):
            pass
        elif hasattr(thing, "__iter__"):
            stack += list(thing)
        if hasattr(thing, "__dict__"):
            stack.append(vars(thing))
        for name in getattr(type(thing), "__slots__", ()):
            if hasattr(thing, name):
                stack.append(getattr(thing, name))
    return total


@pytest.mark.parametrize("mixing", [None, Mixing(16, 4)], ids=["in ranges", "mixed"])
@pytest.mark.parametrize("tasks_done", [0, 500])
def test_a_thousand_million_records_weigh_no_more_than_a_thousand(
    tasks_done: int, mixing: Mixing | None
) -> None:
    weights, snapshots = [], []
    for records in (1_000_000, 1_000_000_000):
        job = a_huge_job(records, mixing)
        worker, instance = WorkerId(0), InstanceId("a")
        job.handle(Tick(), 0.0)
        job.handle(WorkerRegistered(worker, instance, "host", 1), 0.0)
        job.handle(WorkerReady(worker, instance), 0.0)
        for _ in range(tasks_done):
            (lease,) = job.handle(LeaseRequested(worker, instance), 1.0)
            assert isinstance(lease, LeaseGranted)
            held = HeldLease(lease.task, lease.token)
            job.handle(TaskCompleted(worker, held, 1, 1, 1000, 1000), 1.0)
        job.check_invariants()
        weights.append(weigh(job))
        snapshots.append(len(json.dumps(job.snapshot())))
    small, large = weights
    assert large < small + 2_000, "something grows with the data"
    assert large < 100_000
    assert max(snapshots) < 4_000
    assert snapshots[1] < snapshots[0] + 100


def test_the_scale_reaches_tasks_at_the_very_end() -> None:
    partition = TaskPartition((999_999_993, 7), 1000)
    assert partition.count == 1_000_001
    last = partition.range(1_000_000)
    assert (last.file, last.start, last.stop) == (1, 0, 7)
