"""The narrow path by which a worker brings its job's supervisor back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edl_runtime.local import supervision
from edl_worker.concurrency.shared_state import Departure, SharedState
from edl_worker.runtime.supervisor_monitor import OVER_S, SupervisorMonitor


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """A job without a supervisor; each that is started writes a letter."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "spec.json").write_text("{}")
    supervision.describe(tmp_path, ["sh", "-c", f"printf x >> {tmp_path}/starts"], ["true"])
    return tmp_path


def wait_for_start(job_dir: Path) -> bool:
    deadline = time.monotonic() + 200
    while not (job_dir / "starts").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return (job_dir / "starts").exists()


def test_a_worker_that_never_registered_starts_the_supervisor(job_dir: Path) -> None:
    """No master, no registration, no loaded model: the job's directory is enough."""
    SupervisorMonitor(job_dir, 0, SharedState()).check(100.0)
    assert wait_for_start(job_dir)


def test_workers_with_higher_numbers_wait_longer(job_dir: Path) -> None:
    watch = SupervisorMonitor(job_dir, 8, SharedState())
    watch.check(100.0)
    watch.check(101.0)
    assert not (job_dir / "starts").exists()
    watch.check(102.0)
    assert wait_for_start(job_dir)


def test_a_worker_of_a_job_that_is_over_starts_nothing_and_leaves(job_dir: Path) -> None:
    """CHECKPOINT_DAMAGED is such a case: the master failed before it knew of its workers."""
    (job_dir / "status.json").write_text('{"state": "FAILED"}')
    state = SharedState()
    watch = SupervisorMonitor(job_dir, 0, state)
    watch.check(100.0)
    watch.check(100.0 + OVER_S - 1)
    assert not state.leaving
    watch.check(100.0 + OVER_S)
    assert state.departure == Departure("job-over", report=False)
    assert not (job_dir / "starts").exists()
