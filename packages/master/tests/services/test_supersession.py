"""A master that a later one has replaced: it ends, and writes nothing that is final."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from fakes.jobs import RunningJob, training_spec

from edl_master.adapters.job_directory import JobDirectory
from edl_master.app import startup
from edl_master.app.host_environment import HostEnvironment
from edl_master.recovery.restart import SUPERSEDED
from edl_runtime.local import job_directory
from edl_testing.fake_worker import WorkerBehavior


def test_a_master_that_sees_a_later_one_ends_and_keeps_its_instances(tmp_path: Path) -> None:
    seen, working, goes_on = threading.Event(), threading.Event(), threading.Event()

    def hold(worker: int, minibatch: int) -> None:
        working.set()
        goes_on.wait(300)

    behavior = WorkerBehavior(106, at_minibatch=hold)
    host_environment = HostEnvironment(is_superseded=seen.is_set)
    with RunningJob(
        training_spec(tmp_path), tmp_path / "job", behavior, host_environment=host_environment
    ) as job:
        assert working.wait(200)
        seen.set()
        assert job.wait() == SUPERSEDED
        assert any(each.alive for each in job.platform.machine.instances), (
            "they register with the later master"
        )
        goes_on.set()
    assert not (tmp_path / "job" / job_directory.END).exists()
    assert job.directory.read_status().finished_at == ""


def test_a_master_asks_before_it_makes_the_result(tmp_path: Path) -> None:
    host_environment = HostEnvironment(confirm=lambda: False)
    behavior = WorkerBehavior(106)
    with RunningJob(
        training_spec(tmp_path), tmp_path / "job", behavior, host_environment=host_environment
    ) as job:
        assert job.wait() == SUPERSEDED
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "job" / job_directory.END).exists()
    assert job.directory.read_status().finished_at == ""


def test_a_failure_of_a_master_that_was_replaced_is_not_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(code: int) -> NoReturn:
        raise SystemExit(code)  # in the place of the end of this very process

    monkeypatch.setattr(startup, "end_at_once", end)
    (tmp_path / "job").mkdir()
    directory = JobDirectory(tmp_path / "job")  # without the specification of a job
    directory.lock.hold()
    with pytest.raises(SystemExit) as ended:
        startup.work(directory, HostEnvironment(confirm=lambda: False))
    directory.lock.release()
    assert ended.value.code == job_directory.DIRECTORY_TAKEN
    assert not (tmp_path / "job" / job_directory.STATUS).exists()
