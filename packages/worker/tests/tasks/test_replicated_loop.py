"""Replicated training over real gRPC: workers that hold the values, and a master that counts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import OF_TWO_TASKS, RECORDS, Master, export, two_tasks
from linear_engine import Linear, LinearSteps

import recordio
import recordio.example
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_master import WAIT_S, FakeMaster
from edl_worker.app import build_worker
from edl_worker.collectives.shared_memory import Memory
from edl_worker.config import Settings
from edl_worker.runtime import thread_stacks

StartLinear = Callable[..., "LinearWorker"]


class LinearWorker:
    """A worker with the linear engine in a thread of the test's process."""

    def __init__(self, settings: Settings) -> None:
        self.process = build_worker(settings, framework=Linear())
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.exit_code = self.process.run()

    def wait(self) -> int:
        self._thread.join(WAIT_S)
        if self.exit_code is None:
            pytest.fail(f"the worker still runs\n{thread_stacks.format_stacks()}")
        return self.exit_code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartLinear]:
    place = str(tmp_path / "members")
    workers: list[LinearWorker] = []

    def start(master: FakeMaster, worker: int = 0, **settings: Any) -> LinearWorker:
        workers.append(
            LinearWorker(Settings(master.address, worker, replica_dir=place, **settings))
        )
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.leave("the test is over")
        worker.wait()


@pytest.fixture
def replicated(job: job_pb2.JobSpec) -> job_pb2.JobSpec:
    job.training.update = job_pb2.REPLICATED
    return job


def test_one_worker_trains_all_minibatches_in_order(
    replicated: job_pb2.JobSpec, points: Path, start_master: Master, start: StartLinear
) -> None:
    master = start_master(replicated, [two_tasks(points)])
    assert start(master).wait() == 0
    assert master.received.counted == OF_TWO_TASKS
    assert not master.received.pushes
    assert not master.received.failed


def test_two_workers_train_in_step(
    replicated: job_pb2.JobSpec, points: Path, start_master: Master, start: StartLinear
) -> None:
    master = start_master(replicated, [two_tasks(points)])
    master.workers_wanted = 2
    workers = [start(master, number) for number in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert sorted(master.received.counted) == OF_TWO_TASKS
    assert not master.received.failed
    assert max(len(step.claims) for step in master.replicas.steps) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_finite_fails_its_task_and_gets_into_no_values(
    workers: int,
    replicated: job_pb2.JobSpec,
    tmp_path: Path,
    start_master: Master,
    start: StartLinear,
) -> None:
    data = tmp_path / "bad.recordio"
    with recordio.Writer(str(data)) as writer:
        for number in range(RECORDS):
            x = np.full(4, np.nan if number == 50 else 1, np.float32)
            writer.write(recordio.example.encode({"x": x, "label": [1]}))
    replicated.data[:] = [str(data)]
    last = [export(str(tmp_path / "exported"))]
    master = start_master(replicated, [two_tasks(data), last])
    master.workers_wanted = workers
    running = [start(master, number) for number in range(workers)]
    assert [worker.wait() for worker in running] == [0] * workers
    (failed,) = master.received.failed
    assert failed.permanent
    assert "not finite" in failed.error.what
    assert "record 50" in failed.error.where
    assert len(master.received.counted) > 6, "those before it"
    assert all(np.isfinite(values).all() for values in master.by_name().values())


def test_a_generation_brings_the_learning_rate_and_the_end_of_training(
    replicated: job_pb2.JobSpec, points: Path, start_master: Master, start: StartLinear
) -> None:
    master = start_master(replicated, [two_tasks(points)])
    master.leases_left = 1
    with (
        mock.patch.object(LinearSteps, "set_learning_rate") as set_learning_rate,
        mock.patch.object(LinearSteps, "finish") as finish,
    ):
        worker = start(master)
        master.wait_for(lambda: len(master.received.counted) == 6, "a task")
        with master.changed:
            master.replicas.end(learning_rate=0.25, finish=True, save=True)
        master.wait_for(lambda: master.replicas.stored == 6, "values")
        master.leases_left = None
        assert worker.wait() == 0
    assert [call.args for call in set_learning_rate.call_args_list] == [(None,), (0.25,)]
    finish.assert_called_once()


def failures_of_workers(master: FakeMaster) -> list[task_pb2.FailRequest]:
    return [one for one in master.received.failed if not one.HasField("lease")]


def test_a_worker_that_cannot_share_memory_ends_and_says_why(
    replicated: job_pb2.JobSpec, points: Path, start_master: Master, start: StartLinear
) -> None:
    master = start_master(replicated, [two_tasks(points)])
    master.workers_wanted = 2
    no_memory = OSError(errno.ENOMEM, "Cannot allocate memory")
    with mock.patch.object(Memory, "allocate", side_effect=no_memory):
        workers = [start(master, number) for number in range(2)]
        # A task may fail before its worker does.
        master.wait_for(lambda: bool(failures_of_workers(master)), "a failure")
    failed = failures_of_workers(master)[0]
    assert "cannot exchange gradients" in failed.error.what
    assert "Cannot allocate memory" in failed.error.what
    first = master.replicas.generations[0].members[0]
    assert workers[first].wait() != 0
    with master.changed:
        master.replicas.lose(first)
        master.workers_wanted = 1
    assert workers[1 - first].wait() == 0
