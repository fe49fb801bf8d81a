"""An engine of a test: it passes the suite, and a worker needs no TensorFlow to work with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import linear_engine
import numpy as np
import pytest
from conftest import RECORDS, Master, export, lease, training
from engine_suite import EngineSuite

import recordio
import recordio.example
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_master import WAIT_S, FakeMaster


class TestLinear(EngineSuite):
    framework = linear_engine.Linear()


def work(master: FakeMaster) -> None:
    """Run a worker until the job is over; it fails if it has imported TensorFlow."""
    done = subprocess.run(
        [sys.executable, linear_engine.__file__, master.address],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not master.received.failed, master.received.failed


@pytest.mark.parametrize("local_steps", [1, 4])
def test_a_job_trains_evaluates_exports_and_predicts_without_tensorflow(
    job: job_pb2.JobSpec, points: Path, start_master: Master, tmp_path: Path, local_steps: int
) -> None:
    job.training.local_steps = local_steps
    measure = lease(task_pb2.EVALUATION, points, 0, RECORDS)
    summary = task_pb2.Lease(task=task_pb2.TaskKey(type=task_pb2.EVALUATION_SUMMARY, round=1))
    stages = [[training(points, 0, RECORDS)], [measure], [summary], [export(job.output)]]
    master = start_master(job, stages, rate=linear_engine.RATE)
    work(master)
    pushed = [(h.claim.minibatch, h.claim.minibatches) for h in master.received.applied]
    assert pushed == [(at, min(local_steps, 13 - at)) for at in range(0, 13, local_steps)]

    # What a plain loop gives.
    records = [list(recordio.open_source(str(points)).read(0, RECORDS))]
    steps = linear_engine.LinearSteps(line := linear_engine.Line())
    batches = linear_engine.LinearSource().batches(
        lambda: iter(records), mode=linear_engine.Mode.TRAINING, minibatch_size=8, seed=1000
    )
    for batch in batches:
        steps.step(batch)
    found = master.by_name()
    for name, value in steps.named_values().items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)
    (told,) = [
        task.complete.metrics
        for task in master.all_tasks()
        if task.lease.task.type == task_pb2.EVALUATION_SUMMARY and task.complete
    ]
    examples = [recordio.example.decode(record) for record in records[0]]
    x, labels = np.stack([e["x"] for e in examples]), np.array([e["label"][0] for e in examples])
    assert told["loss"] == pytest.approx(np.square(line(x)[:, 0] - labels).mean(), rel=1e-4)
    assert (Path(job.output) / "line.json").exists()

    predict = job_pb2.JobSpec()
    predict.CopyFrom(job)
    predict.ClearField("training")
    predict.type, predict.trained_model, predict.output = job_pb2.PREDICT, job.output, "unused"
    predict.prediction.format = "recordio"
    task = lease(task_pb2.PREDICTION, points, 0, RECORDS)
    task.part_path = str(tmp_path / "0.part")
    work(start_master(predict, [[task]]))
    rows = recordio.open_source(task.part_path).read(0, RECORDS)
    got = np.array([recordio.example.decode(row)["prediction"][0] for row in rows])
    np.testing.assert_allclose(got, line(x)[:, 0], rtol=1e-3, atol=1e-5)
