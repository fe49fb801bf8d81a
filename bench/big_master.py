"""The job state machine alone, with 1,000 workers and a million tasks of a thousand records each.

No network and no parameters: what is measured is the time from the fact that a worker asks for a
task to the decision. ``EDL_BENCH_TASKS`` plays fewer.
"""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from statistics import quantiles

from bench.measure import Measure
from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobSettings, JobType, timings_for

WORKERS = 1000
TASKS = int(os.environ.get("EDL_BENCH_TASKS", "1000000"))
RECORDS = 1000
FILES = 100


def measures() -> list[dict[str, object]]:
    """Leases per second, their tail, memory and snapshots."""
    settings = JobSettings(
        JobType.TRAIN,
        records_per_task=RECORDS,
        minibatch_size=RECORDS,
        num_epochs=1,
        task_attempts=3,
        worker_crashes=3,
        max_workers=WORKERS,
        min_workers=WORKERS,
        export=False,
        export_only=False,
        epoch_barrier=False,
        evaluation_steps=0,
        checkpoint_steps=0,
        snapshot_interval_s=0.0,
        seed=0,
        shuffle=True,
        allow_dead_letters=False,
        timings=timings_for(WORKERS, 10.0, 0.0),
    )
    data = (TASKS * RECORDS // FILES,) * FILES
    tracemalloc.start()
    began = time.perf_counter()
    job = JobStateMachine(settings, data)
    job.handle(ev.Tick(), 0.0)
    for number in range(WORKERS):
        worker, instance = WorkerId(number), InstanceId(f"b{number}")
        job.handle(ev.WorkerRegistered(worker, instance, "host", 1), 0.0)
        job.handle(ev.WorkerReady(worker, instance), 0.0)
    start_s = time.perf_counter() - began
    held = [_lease(job, number, 0.0) for number in range(WORKERS)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    leases: list[float] = []
    now = 0.0
    done = WORKERS
    began = time.perf_counter()
    middle = snapshot_s = 0.0
    size = 0
    while done < TASKS:
        now += 0.01
        number = done % WORKERS
        job.handle(_complete(held[number]), now)
        asked = time.perf_counter()
        held[number] = _lease(job, number, now)
        leases.append(time.perf_counter() - asked)
        done += 1
        if done % 1000 == 0:
            job.handle(ev.Tick(), now)
            for other in range(WORKERS):
                lease = held[other]
                pair = ev.HeldLease(lease.task, lease.token)
                beat = ev.HeartbeatReceived(
                    WorkerId(other), InstanceId(f"b{other}"), (pair,), "computing"
                )
                job.handle(beat, now)
        if done == TASKS // 2:
            middle = time.perf_counter()
            size = len(json.dumps(job.snapshot()))
            snapshot_s = time.perf_counter() - middle
    seconds = time.perf_counter() - began
    cuts = quantiles(leases, n=1000)
    rows = [
        ("leases, with completions and heartbeats", len(leases) / seconds, "/s", 1000.0, True),
        ("one lease, 99th percentile", cuts[989] * 1e3, "ms", 1.0, False),
        (f"start: {TASKS:,} tasks, {WORKERS} workers", start_s, "s", 1.0, False),
        ("memory of the state machine", peak / 2**20, "MiB", 100.0, False),
        ("a snapshot", snapshot_s * 1e3, "ms", 100.0, False),
        ("size of a snapshot", size / 2**10, "KiB", 1024.0, False),
    ]
    return [
        Measure(
            name=f"master: {name}",
            value=value,
            unit=unit,
            peer="limit",
            peer_value=limit,
            ratio=value / limit if more else limit / value,
            target=1.0,
        ).to_json()
        for name, value, unit, limit, more in rows
    ]


def _lease(job: JobStateMachine, number: int, now: float) -> fx.LeaseGranted:
    effects = job.handle(ev.LeaseRequested(WorkerId(number), InstanceId(f"b{number}")), now)
    return next(effect for effect in effects if isinstance(effect, fx.LeaseGranted))


def _complete(lease: fx.LeaseGranted) -> ev.TaskCompleted:
    held = ev.HeldLease(lease.task, lease.token)
    return ev.TaskCompleted(lease.worker, held, 1, 1, RECORDS, RECORDS)
