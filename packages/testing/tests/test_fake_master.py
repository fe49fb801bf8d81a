"""The fake master keeps the rules that the real one keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import recordio
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_testing.fake_worker import FakeWorker, WorkerBehavior
from edl_testing.master_conformance import LeasedTask, MasterConformance

RECORDS = 20


@dataclass
class Instance:
    """An instance that never ends."""

    worker: int = 0
    name: str = "test:1:1"
    asked: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)
    printed: list[str] = field(default_factory=list)

    def check(self) -> None:
        pass


class TestFakeMaster(MasterConformance):
    @pytest.fixture
    def leased(self, tmp_path: Path) -> Iterator[LeasedTask]:
        path = tmp_path / "numbers.recordio"
        with recordio.Writer(str(path)) as writer:
            for number in range(RECORDS):
                writer.write(str(number).encode())
        job = job_pb2.JobSpec(name="counting", type=job_pb2.TRAIN)
        task = task_pb2.Lease(
            task=task_pb2.TaskKey(type=task_pb2.TRAINING, round=1),
            records=[task_pb2.RecordRange(uri=str(path), format="recordio", stop=RECORDS)],
        )
        master = FakeMaster(job, [[task]], rate=1.0).start()
        try:
            with FakeWorker(WorkerBehavior(RECORDS), Instance(), master.address) as worker:
                worker.join()
                lease = worker.ask().lease
                assert worker.pull(lease)
                yield LeasedTask(worker, lease)
        finally:
            master.stop()
