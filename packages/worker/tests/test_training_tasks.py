"""Training over real gRPC: what a worker does with tasks, and what the master gets of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from conftest import Start, training
from edl_proto.v1 import job_pb2, parameters_pb2
from practice_master import PracticeMaster

Master = Callable[..., PracticeMaster]


def test_every_minibatch_is_pushed_once_and_in_order(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = [training(points, 0, 44, number=0), training(points, 44, 100, number=1)]
    master = start_master(job, [tasks])
    assert start_worker(master).wait() == 0
    pushed = [(h.lease.task.number, h.minibatch, h.records) for h, _ in master.heard.pushes]
    assert pushed == [
        *((0, i, 8) for i in range(5)),
        (0, 5, 4),
        *((1, i, 8) for i in range(7)),
    ]
    assert {outcome for _, outcome in master.heard.pushes} == {parameters_pb2.APPLIED}
    for task in master.all_tasks():
        assert task.complete is not None
        assert task.complete.minibatches == task.applied
        assert task.complete.examples == task.complete.records
        assert task.complete.records == task.lease.records.stop - task.lease.records.start
    assert all(np.isfinite(h.loss) and h.loss > 0 for h, _ in master.heard.pushes)
