"""Computing while a gradient is being pushed, over real gRPC."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import tensorflow as tf
from conftest import OF_TWO_TASKS, Master, Start, training, two_tasks
from points_jobs import drop_first_replies

from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep

Header = parameters_pb2.PushHeader


@pytest.fixture
def job(job: job_pb2.JobSpec) -> job_pb2.JobSpec:
    job.training.overlap = True
    return job


def bases(master: FakeMaster) -> list[int]:
    return [header.claim.base_version for header, _ in master.received.pushes]


def test_a_gradient_lacks_at_most_the_one_before_it(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS
    assert bases(master) == [0, 0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10, 11]
    for task in master.all_tasks():
        assert task.complete is not None
        assert task.complete.minibatches == task.applied
    assert not master.received.failed


def test_the_model_is_that_of_gradients_applied_one_step_late(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks], rate=0.1)
    assert start_worker(master).wait() == 0
    reference.assert_close(master.by_name(), _one_step_late(job, tasks, 0.1))


def _one_step_late(
    job: job_pb2.JobSpec, tasks: list[task_pb2.Lease], rate: float
) -> reference.Named:
    file = reference.load_model(job)
    model = file.model
    state = [v for v in model.non_trainable_variables if "float" in v.dtype]
    variables = [*model.trainable_variables, *state]
    for task in tasks:
        late: list[Any] = [np.zeros(v.shape, np.float32) for v in variables]
        for batch in reference.batches(file, job, task):
            before = [v.numpy() for v in variables]
            with tf.GradientTape() as tape:
                loss = file.compute_loss(file.call(batch.features, training=True), batch.labels)
            gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
            moves = [-rate * gradient.numpy() for gradient in gradients]
            known = len(moves)
            moves += [v.numpy() - b for v, b in zip(state, before[known:], strict=True)]
            for variable, value, move in zip(variables, before, late, strict=True):
                variable.assign(value + move)
            late = moves
        for variable, move in zip(variables, late, strict=True):
            variable.assign(variable.numpy() + move)
    return reference.weights.of_model(model)


def test_the_next_minibatch_is_computed_before_the_push_is_answered(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = start_master(job, [[training(points, 0, 40)]])
    steps: list[int] = []
    compute = GradientStep.compute

    def count(self: GradientStep, *given: Any) -> Any:
        step = compute(self, *given)
        with master.changed:
            steps.append(len(steps))
            master.changed.notify_all()
        return step

    monkeypatch.setattr(GradientStep, "compute", count)

    def wait(m: FakeMaster, header: Header) -> None:
        due = min(header.claim.minibatch + 2, 5)
        assert m.changed.wait_for(lambda: len(steps) >= due, 60), "computing waits for the push"

    master.on_push = wait
    assert start_worker(master, 1).wait() == 0  # worker 0 also computes a trial run
    assert len(steps) == 5
    assert [index for _, index in master.received.minibatches] == list(range(5))


def test_a_stale_gradient_and_the_one_computed_meanwhile_are_computed_again(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    answered: set[tuple[int, int]] = set()

    def stale_once(m: FakeMaster, header: Header) -> int | None:
        name = header.claim.lease.task.number, header.claim.minibatch
        if header.claim.minibatch == 2 and name not in answered:
            answered.add(name)
            return parameters_pb2.STALE
        return None

    master.on_push = stale_once
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS
    # From the stale one on each gradient of the task is of the newest version.
    assert bases(master) == [0, 0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12]
    assert not master.received.failed


def test_what_a_former_holder_computed_meanwhile_is_dropped(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])

    def take_away(m: FakeMaster, header: Header) -> None:
        if header.claim.lease.token == 1 and header.claim.minibatch == 3:
            m.find_lease(header.claim.lease).token = 0

    master.on_push = take_away
    assert start_worker(master, prefetch_lead_s=-1.0).wait() == 0
    mine = [h.claim.minibatch for h, _ in master.received.pushes if h.claim.lease.token == 1]
    assert mine == [0, 1, 2, 3], "the gradient after the refused one was not pushed"
    assert sorted(master.received.minibatches) == OF_TWO_TASKS


def test_a_task_that_is_out_of_step_is_handed_back(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])

    def contradict(m: FakeMaster, header: Header) -> int | None:
        first = header.claim.lease.token == 1 and header.claim.minibatch == 2
        return parameters_pb2.OUT_OF_ORDER if first else None

    master.on_push = contradict
    assert start_worker(master).wait() == 0
    assert [lease.token for lease in master.received.returned[0].leases] == [1]
    assert sorted(master.received.minibatches) == OF_TWO_TASKS


def test_a_lost_answer_changes_nothing(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    drop_first_replies(master, 1)
    assert start_worker(master).wait() == 0
    outcomes = [outcome for _, outcome in master.received.pushes]
    assert outcomes.count(parameters_pb2.ALREADY_APPLIED) == 2
    assert master.received.minibatches == OF_TWO_TASKS
    reference.assert_close(master.by_name(), _one_step_late(job, tasks, 0.1))


def test_an_invalid_gradient_is_reported_for_its_own_minibatch(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [[training(points, 0, 40)]])

    def invalid(m: FakeMaster, header: Header) -> int | None:
        return parameters_pb2.INVALID if header.claim.minibatch == 2 else None

    master.on_push = invalid
    assert start_worker(master).wait() == 0
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert "minibatch 2" in failed.error.where
    assert "version 1" in failed.error.what


def test_a_task_that_fails_is_not_reported_while_its_push_is_on_its_way(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next task would use what the answer is being received into."""
    master = start_master(job, [[training(points, 0, 40)]])
    steps: list[int] = []
    raised = threading.Event()
    compute = GradientStep.compute

    def third_fails(self: GradientStep, *given: Any) -> Any:
        steps.append(len(steps))
        if len(steps) == 3:
            raised.set()
            raise ArithmeticError("the third step")
        return compute(self, *given)

    monkeypatch.setattr(GradientStep, "compute", third_fails)
    early: list[bool] = []

    def slow(m: FakeMaster, header: Header) -> None:
        if header.claim.minibatch == 1 and not early:
            assert raised.wait(200)
            early.append(m.changed.wait_for(lambda: bool(m.received.failed), 1.0))

    master.on_push = slow
    assert start_worker(master, 1).wait() == 0  # worker 0 also computes a trial run
    assert early == [False]
    (failed,) = master.received.failed
    assert "minibatch 2" in failed.error.where
    assert master.received.minibatches == [(0, i) for i in range(5)], (
        "the second holder did the rest"
    )


def test_a_worker_that_leaves_settles_its_push_before_it_hands_the_task_back(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    asked = threading.Event()

    def slow(m: FakeMaster, header: Header) -> None:
        if header.claim.minibatch == 2 and not asked.is_set():
            asked.set()
            # Answered only when the worker has seen that it has to leave, and is waiting.
            m.changed.wait_for(lambda: worker.process._state.leaving, 60)

    master.on_push = slow
    worker = start_worker(master)
    assert asked.wait(200)
    worker.process.leave("terminated")
    assert worker.wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS[:3], (
        "what was on its way counts, and nothing after it"
    )
    assert master.received.returned
    assert start_worker(master, 1).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS


def test_a_push_on_its_way_to_a_master_that_is_replaced_is_void(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    kept: list[dict[str, Any]] = []
    reached = threading.Event()

    def keep(m: FakeMaster, header: Header) -> None:
        if m.incarnation == "first" and header.claim.minibatch == 2:
            kept.append(m.snapshot_held())
        if m.incarnation == "first" and header.claim.minibatch == 4:
            reached.set()

    master.on_push = keep
    worker = start_worker(master)
    assert reached.wait(200)
    master.restart(kept[0])
    assert worker.wait() == 0
    assert len(master.received.registered) == 2
    for task in master.all_tasks():
        assert task.done
        assert task.complete is not None
    again = [
        (h.claim.lease.task.number, h.claim.minibatch)
        for h, outcome in master.received.pushes
        if h.incarnation == "first+" and outcome == parameters_pb2.APPLIED
    ]
    assert again == OF_TWO_TASKS[2:], "all that came after the snapshot, once"
