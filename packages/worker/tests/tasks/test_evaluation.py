"""Evaluation of frozen parameters, in parts, equals that of Keras."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import reference
import tensorflow as tf
from conftest import Master, Start, lease, training
from keras_jobs import load
from points_jobs import all_points, by_keras, predict_job

from edl_proto import tensor
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.codec.jobs import decode_job
from edl_worker.codec.tasks import encode_result
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.config import Settings
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.tasks import LeaseRef, MetricState, TaskKey, TaskResult, TaskType
from edl_worker.runtime.identity import identity
from edl_worker.training.initial_values import send_initial_values
from edl_worker.training.replica import ParameterReplica
from edl_worker.transport.master_connection import MasterConnection
from edl_worker.transport.parameter_client import ParameterClient
from edl_worker.transport.task_client import TaskClient


def evaluations(points: Path) -> list[list[task_pb2.Lease]]:
    cuts = [0, 30, 61, 100]
    parts = [
        lease(task_pb2.EVALUATION, points, start, stop, number=number)
        for number, (start, stop) in enumerate(itertools.pairwise(cuts))
    ]
    summary = task_pb2.Lease(task=task_pb2.TaskKey(type=task_pb2.EVALUATION_SUMMARY, round=1))
    return [parts, [summary]]


def metrics_of(master: FakeMaster) -> dict[str, float]:
    (found,) = [
        dict(task.complete.metrics)
        for task in master.all_tasks()
        if task.lease.task.type == task_pb2.EVALUATION_SUMMARY and task.complete
    ]
    return found


def test_an_evaluation_in_parts_equals_one_of_the_whole(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [[training(points, 0, 100)], *evaluations(points)])
    assert start_worker(master).wait() == 0
    assert not master.received.failed
    _, wanted = by_keras(job, master.by_name(), points)
    got = metrics_of(master)
    assert set(got) == {"loss", "accuracy"}
    assert got["accuracy"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
    examples = [t.complete.examples for t in master.stages[1] if t.complete]
    assert examples == [30, 31, 39]


def test_training_goes_on_with_the_newest_parameters_after_an_evaluation_of_frozen_ones(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = [training(points, 0, 44), training(points, 44, 100, number=1)]
    parts, summary = evaluations(points)
    for part in parts:
        part.frozen = "stage-0"  # from before the first task, which is done by then
    master = start_master(job, [[tasks[0]], parts, summary, [tasks[1]]])
    assert start_worker(master).wait() == 0
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))
    frozen = [pull.frozen for pull in master.received.pulls if pull.frozen]
    assert frozen == ["stage-0"], "one version, fetched once for three tasks"


def test_a_copy_of_frozen_parameters_is_none_of_the_newest(
    job: job_pb2.JobSpec, start_master: Master
) -> None:
    master = start_master(job, [])
    loaded = load(decode_job(job), {"worker_id": 0})
    steps = loaded.steps
    assert steps is not None
    connection = MasterConnection(Settings(master.address, 0), identity(0), SharedState())
    tasks = TaskClient(connection)
    tasks.register()
    client = ParameterClient(connection)
    client.open(tasks.ready(loaded.describe()), loaded.describe())
    replica = ParameterReplica(steps, client)
    assert not replica.pull().initialized, "there are no values yet"
    assert send_initial_values(client, steps.pack(), None)
    assert not send_initial_values(client, steps.pack(), None), "only once"
    initial = master.values.copy()
    master.frozen["old"] = 0, initial
    master.values = np.full_like(initial.view(np.float32), 7.0).view(np.uint8)
    master.version = 3
    for _ in range(2):
        assert replica.pull().initialized
        assert replica.version == 3
        np.testing.assert_array_equal(steps.pack(), master.values)
        replica.use_frozen("old")
        np.testing.assert_array_equal(steps.pack(), initial)
    client.close()
    connection.close()


def test_metric_states_travel_exactly(job: job_pb2.JobSpec, points: Path) -> None:
    file = reference.load_model(job)
    metrics = file.new_metrics()
    x, y = all_points(points)
    metrics.update(tf.constant(y), file.call({"x": tf.constant(x)}, training=False))
    states = tuple(MetricState(name, tuple(arrays)) for name, arrays in metrics.states())
    ref = LeaseRef(TaskKey(TaskType.EVALUATION, 1, 0), 1)
    me = WorkerIdentity(0, "instance", "host", pid=1)
    sent = encode_result(me, "incarnation", ref, TaskResult(metric_states=states)).metric_states
    for (name, arrays), message in zip(metrics.states(), sent, strict=True):
        assert message.name == name
        for array, value in zip(arrays, message.variables, strict=True):
            got = tensor.decode(value)
            assert got.dtype == np.asarray(array).dtype
            np.testing.assert_array_equal(got, array)


def test_an_evaluate_job_reads_the_trained_values_itself(
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
) -> None:
    evaluate = predict_job(job, finished_job[0])
    evaluate.type = job_pb2.EVALUATE
    evaluate.minibatch_size = 7
    master = start_master(evaluate, evaluations(points))
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    assert not master.received.pulls
    _, wanted = by_keras(job, finished_job[1].by_name(), points)
    got = metrics_of(master)
    assert got["accuracy"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
