"""A master that a later one has replaced: it ends, and writes nothing that is final."""

from __future__ import annotations

import threading
from pathlib import Path

from fakes.jobs import RunningJob, training_spec

from edl_master.app.hosting import Hosting
from edl_master.recovery.restart import SUPERSEDED
from edl_proto.local import job_directory
from edl_testing.fake_worker import WorkerBehavior


def test_a_master_that_sees_a_later_one_ends_and_keeps_its_instances(tmp_path: Path) -> None:
    seen, working, goes_on = threading.Event(), threading.Event(), threading.Event()

    def hold(worker: int, minibatch: int) -> None:
        working.set()
        goes_on.wait(120)

    behavior = WorkerBehavior(106, at_minibatch=hold)
    hosting = Hosting(is_superseded=seen.is_set)
    with RunningJob(training_spec(tmp_path), tmp_path / "job", behavior, hosting=hosting) as job:
        assert working.wait(60)
        seen.set()
        assert job.wait() == SUPERSEDED
        assert any(each.alive for each in job.platform.machine.instances), (
            "they register with the later master"
        )
        goes_on.set()
    assert not (tmp_path / "job" / job_directory.END).exists()
    assert job.directory.read_status().finished_at == ""


def test_a_master_asks_before_it_makes_the_result(tmp_path: Path) -> None:
    hosting = Hosting(confirm=lambda: False)
    behavior = WorkerBehavior(106)
    with RunningJob(training_spec(tmp_path), tmp_path / "job", behavior, hosting=hosting) as job:
        assert job.wait() == SUPERSEDED
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "job" / job_directory.END).exists()
    assert job.directory.read_status().finished_at == ""
