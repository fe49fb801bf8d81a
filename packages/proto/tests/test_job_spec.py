"""Which fields of a job's specification must be set."""

from __future__ import annotations

from typing import Any

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.job_spec import check_complete, required_fields
from edl_proto.v1 import job_pb2


def spec(type_: str = "TRAIN") -> job_pb2.JobSpec:
    message = job_pb2.JobSpec(
        name="a",
        type=job_pb2.JobType.Value(type_),
        data=["x"],
        output="out",
        minibatch_size=32,
        workers=job_pb2.WorkersSpec(min=1, max=1),
        failures=job_pb2.FailureSpec(task_attempts=3, worker_crashes=3),
        serving=job_pb2.ServingSpec(host="127.0.0.1", metrics_auth="token"),
        worker_grace_s=10,
        snapshot_interval_s=5,
        tensorboard_dir="/tensorboard",
        platform="processes",
    )
    if type_ == "TRAIN":
        message.model.model_zoo, message.model.model_def = "/zoo", "model"
        training = message.training
        training.num_epochs, training.update, training.local_steps = 1, job_pb2.ASYNC, 1
        training.keep_checkpoints = 3
    else:
        message.trained_model = "/model"
    if type_ == "PREDICT":
        message.prediction.format = "recordio"
    return message


def missing_fields(message: job_pb2.JobSpec) -> str:
    with pytest.raises(EdlError) as caught:
        check_complete(message)
    assert caught.value.code == ErrorCode.USAGE
    assert caught.value.remedy
    return caught.value.what.partition(": ")[2]


@pytest.mark.parametrize("type_", ["TRAIN", "EVALUATE", "PREDICT"])
def test_a_complete_specification_is_accepted(type_: str) -> None:
    check_complete(spec(type_))


@pytest.mark.parametrize("type_", ["TRAIN", "EVALUATE", "PREDICT"])
def test_each_missing_field_is_named(type_: str) -> None:
    for path in set(required_fields(spec(type_))) - {"type"}:
        message: Any = spec(type_)
        *parents, name = path.split(".")
        owner = message
        for parent in parents:
            owner = getattr(owner, parent)
        owner.ClearField(name)
        assert missing_fields(message) == path


def test_all_missing_fields_are_named() -> None:
    message = spec("PREDICT")
    message.ClearField("output")
    message.ClearField("trained_model")
    assert missing_fields(message) == "trained_model, output"
    assert "type" in missing_fields(job_pb2.JobSpec()).split(", ")


def test_each_mode_of_updates_needs_its_own_number() -> None:
    message = spec()
    message.training.update = job_pb2.SYNC
    assert missing_fields(message) == "training.grads_to_wait"
    message.training.update = job_pb2.BOUNDED
    assert missing_fields(message) == "training.max_staleness"
    message.training.max_staleness = 0  # a staleness of 0 is a choice
    check_complete(message)
    message.training.ClearField("max_staleness")
    message.training.update = job_pb2.REPLICATED
    check_complete(message)
