"""What a status says of a job's settings."""

from __future__ import annotations

import pytest

from edl_master.core.parameters.modes import Async, Replicated, UpdateMode
from edl_master.reporting.job_settings import name_strategy, settings_of
from edl_proto.v1 import job_pb2


def test_settings_have_dotted_names_and_leave_out_what_is_empty() -> None:
    spec = job_pb2.JobSpec(
        name="digits", type=job_pb2.TRAIN, data=["a.rec", "b.rec"], minibatch_size=64
    )
    spec.training.num_epochs = 3
    assert settings_of(spec) == {
        "type": "TRAIN",
        "data": "a.rec, b.rec",
        "minibatch_size": "64",
        "training.num_epochs": "3",
    }


def test_settings_have_the_strategy_of_training() -> None:
    spec = job_pb2.JobSpec(type=job_pb2.TRAIN)
    spec.training.update = job_pb2.REPLICATED
    assert settings_of(spec) == {"type": "TRAIN", "training.strategy": "allreduce"}
    spec.training.update = job_pb2.AUTO
    assert settings_of(spec) == {"type": "TRAIN", "training.strategy": "auto"}, "not decided yet"


@pytest.mark.parametrize(
    ("mode", "update"), [(Replicated(), job_pb2.REPLICATED), (Async(), job_pb2.ASYNC)]
)
def test_what_a_model_decides_is_shown_as_if_the_user_had_said_it(
    mode: UpdateMode, update: job_pb2.UpdateMode.ValueType
) -> None:
    said, undecided = job_pb2.JobSpec(type=job_pb2.TRAIN), job_pb2.JobSpec(type=job_pb2.TRAIN)
    said.training.update, undecided.training.update = update, job_pb2.AUTO
    decided, event = name_strategy(mode)
    assert {**settings_of(undecided), **decided} == settings_of(said)
    assert event.facts["strategy"] == decided["training.strategy"]


def test_settings_have_no_passwords_and_no_variables_of_pods() -> None:
    spec = job_pb2.JobSpec(data=["https://ada:secret@store.test/a.rec"])
    spec.kubernetes.worker_pod = '{"env": [{"name": "KEY", "value": "secret"}]}'
    spec.containers.engine = "tcp://me:secret@127.0.0.1:2375"
    assert settings_of(spec) == {"data": "https://store.test/a.rec"}


def test_the_code_of_a_model_is_its_hash() -> None:
    spec = job_pb2.JobSpec()
    spec.model.code.sha256 = "ab12"
    spec.model.code.files["mnist.py"] = "cd34"
    assert settings_of(spec) == {"model.code": "ab12"}
