"""The real master keeps the rules that the doubles of the other packages' tests keep."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.jobs import DEADLINE_S, RunningJob, training_spec

from edl_proto.v1 import task_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior
from edl_testing.master_conformance import LeasedTask, MasterConformance

RECORDS = 106


class TestMaster(MasterConformance):
    @pytest.fixture
    def leased(self, tmp_path: Path) -> Iterator[LeasedTask]:
        """A worker of a running job that waits before its first minibatch."""
        arrived: list[FakeWorker] = []
        here, go = threading.Event(), threading.Event()

        def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
            if not arrived:
                arrived.append(worker)
                here.set()
            while not go.wait(0.01):
                worker.instance.check()

        spec = training_spec(tmp_path)
        spec.workers.min = spec.workers.max = 1
        behavior = WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
        with RunningJob(spec, tmp_path / "job", behavior) as job:
            assert here.wait(DEADLINE_S)
            (worker,) = arrived
            version = worker.version
            (held,) = worker.held.values()
            yield LeasedTask(worker, task_pb2.Lease(task=held.task, token=held.token))
            # Whatever the suite did, the job ends well.
            worker.version = version
            go.set()
            assert job.wait() == 0
