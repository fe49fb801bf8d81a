"""What fails a training task, and how that is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from conftest import ZOO, Master, Start, training
from example_data import example

import recordio
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2
from edl_worker.core import exit_codes
from edl_worker.tasks.task_errors import is_permanent


def test_a_loss_that_is_not_finite_fails_the_task_for_good(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.loss = "faulty.not_finite"
    master = start_master(job, [[training(points, 16, 56)]])
    assert start_worker(master, 1).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert "nan" in failed.error.what
    assert "version 0" in failed.error.what
    assert f"{points}, records [16, 56), minibatch 0" in failed.error.where
    assert "learning rate" in failed.error.remedy
    assert not master.received.pushes


def test_a_loss_that_is_not_finite_because_of_sample_weights(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.loss = "faulty.crossentropy"
    job.model.dataset_fn = "faulty.weighted_with_nan"
    master = start_master(job, [[training(points, 16, 56)]])
    assert start_worker(master, 1).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert failed.error.what == "the loss is nan: the sample weights are not finite"
    assert f"{points}, records [16, 56), minibatch 0" in failed.error.where
    assert "finite numbers" in failed.error.remedy


def test_a_value_of_the_data_that_is_not_finite_fails_the_task_with_its_place(
    job: job_pb2.JobSpec, tmp_path: Path, start_master: Master, start_worker: Start
) -> None:
    data = tmp_path / "points.recordio"
    with recordio.Writer(str(data)) as writer:
        for number in range(40):
            x = np.array([0.5, 0.5, 0.5, np.nan if number == 21 else 0.5], np.float32)
            writer.write(example(x=x, label=np.array([1])))
    job.data[:] = [str(data)]
    master = start_master(job, [[training(data, 16, 24)]])
    master.on_push = lambda m, header: parameters_pb2.INVALID  # the loss is finite, after relu
    assert start_worker(master, 1).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.DATA_DAMAGED
    assert failed.error.what.endswith(
        f": the features x are not finite; x=nan at {data}, record 21"
    )
    assert f"{data}, record 21, read by {data}, records [16, 24)" in failed.error.where


def test_a_label_that_the_loss_cannot_take_fails_the_task_with_its_place(
    job: job_pb2.JobSpec, tmp_path: Path, start_master: Master, start_worker: Start
) -> None:
    data = tmp_path / "points.recordio"
    with recordio.Writer(str(data)) as writer:
        for number in range(40):
            label = np.array([3 if number == 21 else 1])
            writer.write(example(x=np.zeros(4, np.float32), label=label))
    job.data[:] = [str(data)]
    job.model.loss = "faulty.crossentropy"
    master = start_master(job, [[training(data, 0, 16)], [training(data, 16, 24)]])
    assert start_worker(master, 1).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.SHAPE_MISMATCH
    assert "has the classes 0 to 2, and the labels are 1 to 3" in failed.error.what
    assert failed.error.what.endswith(f"at {data}, record 21")
    assert failed.error.where.startswith(f"{data}, record 21 and {ZOO}/faulty.py:")
    assert "label - 1" in failed.error.remedy


def test_the_first_worker_finds_such_a_loss_before_it_joins(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.loss = "faulty.not_finite"
    master = start_master(job, [[training(points, 16, 56)]])
    assert start_worker(master, 0).wait() == exit_codes.FAILED
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert not master.received.ready


def test_an_invalid_gradient_fails_the_task_for_good(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [[training(points, 0, 40)]])
    master.on_push = lambda m, header: parameters_pb2.INVALID
    assert start_worker(master).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.NAN_LOSS
    assert "gradient" in failed.error.what


def test_user_code_that_raises_fails_the_task_with_its_traceback(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.dataset_fn = "faulty.raising"
    master = start_master(job, [[training(points, 0, 40)], [training(points, 40, 80)]])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert not failed.permanent
    assert failed.error.code == ErrorCode.USER_CODE
    assert "the cat is on the keyboard" in failed.error.what
    assert f"{ZOO}/faulty.py:" in failed.error.where
    assert "records [0, 40)" in failed.error.where
    assert "faulty.py" in failed.error.detail
    assert len(master.received.failed) == 6, "three attempts for each task, and the worker lives on"


def test_a_slip_of_the_model_file_fails_the_task_at_once(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.dataset_fn = "faulty.slipping"
    master = start_master(job, [[training(points, 0, 40)]])
    assert start_worker(master).wait() == 0
    (failed,) = master.received.failed
    assert failed.permanent
    assert failed.error.code == ErrorCode.USER_CODE
    assert "KeyError: 'x'" in failed.error.what


def test_an_error_that_was_raised_from_itself_may_be_met_by_this_attempt_only() -> None:
    error = EdlError(ErrorCode.USER_CODE, "the input function raised OSError")
    error.__cause__ = error
    assert not is_permanent(error)


def test_a_lack_of_memory_is_an_error_of_the_machine(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.dataset_fn = "faulty.exhausting"
    master = start_master(job, [[training(points, 0, 40)]])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.SYSTEM, failed.error
    assert not failed.permanent, "another machine may have more"
    assert "out-of-memory error: OOM when allocating" in failed.error.what
    assert "smaller --minibatch-size" in failed.error.remedy
    assert f"{points}, records [0, 40)" in failed.error.where


def test_a_minibatch_of_another_shape_is_reported_with_both_shapes(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.dataset_fn = "faulty.reshape"
    master = start_master(job, [[training(points, 0, 40)]])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.SHAPE_MISMATCH, failed.error
    assert failed.permanent
    assert "(None, 4)" in failed.error.what
    assert ", 3)" in failed.error.what


def test_a_contract_error_is_reported_before_any_task_is_leased(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.model.loss = "faulty.nothing_here"
    master = start_master(job, [[training(points, 0, 40)]])
    assert start_worker(master).wait() == 1
    (failed,) = master.received.failed
    assert failed.permanent
    assert not failed.HasField("lease")
    assert not any(task.lease.token for task in master.all_tasks())
    assert not master.received.ready


def test_missing_data_is_reported_before_any_task_is_leased(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.data[:] = [f"{points}.gone"]
    master = start_master(job, [[training(points, 0, 40)]])
    assert start_worker(master).wait() == 1
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.DATA_NOT_FOUND


def test_a_file_that_lost_records_since_it_was_indexed_is_damaged(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [[training(points, 44, 108)]])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.DATA_DAMAGED
    assert "points.recordio" in failed.error.where
    assert failed.error.remedy
