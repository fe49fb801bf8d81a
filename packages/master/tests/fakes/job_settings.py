"""Settings of jobs in tests; each test names only those that matter to it."""

from __future__ import annotations

from typing import Any

from edl_master.core.settings import JobSettings, JobType


def job_settings(type_: JobType, **chosen: Any) -> JobSettings:
    """The settings of a small job, with the chosen ones."""
    usual: dict[str, Any] = {
        "records_per_task": 4,
        "minibatch_size": 32,
        "num_epochs": 1,
        "task_attempts": 3,
        "worker_crashes": 3,
    }
    return JobSettings(type=type_, **{**usual, **chosen})
