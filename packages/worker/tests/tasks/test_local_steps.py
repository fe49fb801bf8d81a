"""Local steps, over real gRPC: several minibatches in one push."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import OF_TWO_TASKS, Master, Start, StartProcess, training, two_tasks
from points_jobs import drop_first_replies

from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2
from edl_testing.fake_master import WAIT_S, FakeMaster

Header = parameters_pb2.PushHeader


@pytest.fixture
def job(job: job_pb2.JobSpec) -> job_pb2.JobSpec:
    job.training.local_steps = 3
    return job


def parts(master: FakeMaster) -> list[tuple[int, int, int]]:
    """Task, first minibatch and number of minibatches of what is in the model."""
    return [
        (h.claim.lease.task.number, h.claim.minibatch, h.claim.minibatches)
        for h in master.received.applied
    ]


def test_one_push_stands_for_several_minibatches_and_a_task_ends_with_what_is_left(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    assert parts(master) == [(0, 0, 3), (0, 3, 3), (1, 0, 3), (1, 3, 3), (1, 6, 1)]
    assert [h.claim.records for h, _ in master.received.pushes] == [24, 20, 24, 24, 8]
    assert [h.claim.base_version for h, _ in master.received.pushes] == [0, 3, 6, 9, 12]
    for task in master.all_tasks():
        assert task.complete is not None
        assert task.complete.minibatches == task.applied
    assert all(np.isfinite(h.step.loss) and h.step.loss > 0 for h, _ in master.received.pushes)
    assert not master.received.failed


def test_the_model_of_one_worker_is_that_of_a_plain_loop_moving_statistics_included(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks], rate=0.1)
    assert start_worker(master).wait() == 0
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_the_loss_of_a_push_is_the_mean_over_its_records(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    task = training(points, 0, 20)
    job.training.local_steps = 5
    master = start_master(job, [[task]])
    assert start_worker(master).wait() == 0
    ((header, _),) = master.received.pushes
    file = reference.load_model(job)
    total = 0.0
    for batch in reference.batches(file, job, task):
        reference.step(
            file, [batch], 0.0
        )  # moving statistics only: training mode does not use them
        loss = file.compute_loss(file.call(batch.features, training=True), batch.labels)
        total += float(loss) * batch.size
        reference.step(file, [batch], 0.1)
    assert header.step.loss == pytest.approx(total / 20, rel=1e-4)


def test_a_lost_answer_changes_nothing(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    drop_first_replies(master, 3)
    assert start_worker(master).wait() == 0
    outcomes = [outcome for _, outcome in master.received.pushes]
    assert outcomes.count(parameters_pb2.ALREADY_APPLIED) == 2
    assert master.received.minibatches == OF_TWO_TASKS
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_what_was_not_applied_is_computed_again_from_the_masters_values(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    answered: set[int] = set()

    def stale_once(m: FakeMaster, header: Header) -> int | None:
        if header.claim.minibatch == 3 and header.claim.lease.token not in answered:
            answered.add(header.claim.lease.token)
            return parameters_pb2.STALE
        return None

    master.on_push = stale_once
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_local_steps_of_a_task_that_was_lost_leave_no_trace(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    """The next values are asked for, though the master has none newer than those begun with."""
    tasks = [training(points, 0, 44)]
    master = start_master(job, [tasks])

    def take_away(m: FakeMaster, header: Header) -> None:
        if header.claim.lease.token == 1:
            m.find_lease(header.claim.lease).token = 0

    master.on_push = take_away
    assert start_worker(master).wait() == 0
    assert parts(master) == [(0, 0, 3), (0, 3, 3)]
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_the_next_holder_begins_in_the_middle(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    next(master.all_tasks()).applied = 2
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS[2:]
    assert parts(master)[:2] == [(0, 2, 3), (0, 5, 1)]
    done = next(master.all_tasks()).complete
    assert done is not None
    assert done.minibatches == 6


def test_a_worker_that_leaves_pushes_what_it_has_done(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.training.local_steps = 1000
    tasks = [training(points, 0, 100)]
    master = start_master(job, [tasks])
    worker = start_worker(master)
    steps = worker.process._session.metrics.compute_s
    original = type(steps).observe

    def leave_after_four(self: object, value: float) -> None:
        original(steps, value)
        done.append(value)
        if len(done) == 4:
            worker.process.leave("terminated")

    done: list[float] = []
    worker.process._session.metrics.compute_s = type(
        "Counting", (), {"observe": leave_after_four}
    )()
    assert worker.wait() == 0
    assert parts(master) == [(0, 0, 4)]
    assert master.received.returned
    assert start_worker(master, 1).wait() == 0
    assert master.received.minibatches == [(0, i) for i in range(13)]
    reference.assert_close(master.by_name(), reference.train(job, tasks, rate=0.1))


def test_a_worker_that_is_killed_repeats_only_what_it_had_not_pushed(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_process: StartProcess
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    first = start_process(master.address)
    master.wait_for(lambda: len(master.received.applied) == 1, "a push")
    first.kill()
    first.wait(WAIT_S)
    master.lose(0)
    assert start_process(master.address, 1).wait(WAIT_S) == 0
    assert sorted(master.received.minibatches) == OF_TWO_TASKS


def test_a_loss_that_is_not_finite_names_its_own_minibatch(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.loss = "faulty.not_finite"
    master = start_master(job, [[training(points, 16, 56)]])
    assert start_worker(master, 1).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert "minibatch 0" in failed.error.where
    assert not master.received.pushes


def test_schedules_and_slots_are_those_of_the_model_files_own_optimizer(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    """Adam with a schedule: one worker trains as Keras does, across pushes and tasks."""
    job.model.optimizer = "local.scheduled_adam"
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    assert start_worker(master).wait() == 0
    file = reference.load_model(job)
    variables = file.model.trainable_variables
    file.optimizer.build(variables)
    for task in tasks:
        for batch in reference.batches(file, job, task):
            with reference.tf.GradientTape() as tape:
                loss = file.compute_loss(file.call(batch.features, training=True), batch.labels)
            gradients = tape.gradient(loss, [v.value for v in variables])
            file.optimizer.apply(gradients, variables)
    reference.assert_close(master.by_name(), reference.weights.of_model(file.model))
