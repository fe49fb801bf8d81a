"""Settings of jobs in tests; each test names only those that matter to it."""

from __future__ import annotations

from typing import Any

from edl_master.core.settings import JobSettings, JobType, Timings

TIMINGS = Timings(worker_grace_s=10.0)


def job_settings(type_: JobType, **chosen: Any) -> JobSettings:
    """The settings of a small job, with the chosen ones."""
    usual: dict[str, Any] = {
        "records_per_task": 4,
        "minibatch_size": 32,
        "num_epochs": 1,
        "task_attempts": 3,
        "worker_crashes": 3,
        "epoch_barrier": False,
        "evaluation_steps": 0,
        "checkpoint_steps": 0,
        "snapshot_interval_s": 0.0,
        "export": True,
        "export_only": False,
        "seed": 0,
        "shuffle": True,
        "min_workers": 1,
        "max_workers": 1,
        "allow_dead_letters": False,
        "timings": TIMINGS,
    }
    return JobSettings(type=type_, **{**usual, **chosen})
