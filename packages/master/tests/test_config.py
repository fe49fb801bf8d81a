"""From what a user submitted to settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edl_master import config
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2


def spec(**changes: object) -> job_pb2.JobSpec:
    fields = {"name": "a", "type": job_pb2.TRAIN, "data": ["x"], "output": "out"}
    return job_pb2.JobSpec(**{**fields, **changes})


def read(message: job_pb2.JobSpec, **environ: str) -> config.Config:
    return config.read(message, Path("/jobs/a"), environ)


def test_the_least_that_can_be_submitted_has_sensible_settings() -> None:
    found = read(spec())
    settings = found.job_settings(records=100_000)
    assert settings.minibatch_size == 32
    assert settings.num_epochs == 1
    assert settings.records_per_task == 64 * 32
    assert (settings.min_workers, settings.max_workers) == (1, 1)
    assert (settings.task_attempts, settings.worker_crashes) == (3, 3)
    assert not settings.epoch_barrier
    assert settings.export
    assert settings.timings.worker_grace_s == 10
    assert found.update_mode(Reduction.MEAN) == Async()
    assert found.host == "127.0.0.1"
    assert found.checkpoint_dir is None
    assert found.tensorboard_dir == Path("/jobs/a/tensorboard")
    assert found.python == sys.executable
    assert read(spec(), EDL_PYTHON="/opt/python").python == "/opt/python"


def test_what_is_submitted_is_used() -> None:
    found = read(
        spec(
            minibatch_size=64,
            records_per_task=1000,
            workers=job_pb2.WorkersSpec(min=2, max=5),
            failures=job_pb2.FailureSpec(task_attempts=7, allow_dead_letters=True),
            serving=job_pb2.ServingSpec(host="0.0.0.0"),
            training=job_pb2.TrainingSpec(
                num_epochs=4,
                evaluation_steps=10,
                seed=3,
                shuffle=True,
                checkpoint_dir="/checkpoints",
                checkpoint_steps=20,
            ),
            tensorboard_dir="/board",
            worker_grace_s=2.5,
        )
    )
    settings = found.job_settings(records=10)
    assert (settings.minibatch_size, settings.records_per_task) == (64, 1000)
    assert (settings.min_workers, settings.max_workers) == (2, 5)
    assert (settings.task_attempts, settings.allow_dead_letters) == (7, True)
    assert (settings.num_epochs, settings.seed, settings.shuffle) == (4, 3, True)
    assert (settings.evaluation_steps, settings.checkpoint_steps) == (10, 20)
    assert settings.timings.worker_grace_s == 2.5
    assert (found.host, found.tensorboard_dir) == ("0.0.0.0", Path("/board"))
    assert found.checkpoint_dir == Path("/checkpoints")
    assert found.keep_checkpoints == 3


def test_a_sync_job_waits_for_everybody_unless_told_otherwise() -> None:
    training = job_pb2.TrainingSpec(update=job_pb2.SYNC)
    found = read(spec(training=training, workers=job_pb2.WorkersSpec(max=4)))
    assert found.update_mode(Reduction.SUM) == Sync(4, Reduction.SUM)
    assert found.job_settings(100).epoch_barrier
    training.grads_to_wait = 2
    assert read(spec(training=training)).update_mode(Reduction.MEAN) == Sync(2, Reduction.MEAN)


def test_bounded_staleness() -> None:
    training = job_pb2.TrainingSpec(update=job_pb2.BOUNDED)
    found = read(spec(training=training, workers=job_pb2.WorkersSpec(max=4)))
    assert found.update_mode(Reduction.MEAN) == Bounded(4)
    training.overlap = True
    found = read(spec(training=training, workers=job_pb2.WorkersSpec(max=4)))
    assert found.update_mode(Reduction.MEAN) == Bounded(8)
    for updates in (3, 0):
        training.max_staleness = updates
        assert read(spec(training=training)).update_mode(Reduction.MEAN) == Bounded(updates)


def test_local_steps_are_a_kind_of_async() -> None:
    training = job_pb2.TrainingSpec(local_steps=3)
    assert read(spec(training=training)).update_mode(Reduction.MEAN) == Async(local=True)
    training.local_steps = 1
    assert read(spec(training=training)).update_mode(Reduction.MEAN) == Async()


@pytest.mark.parametrize(
    "changes",
    [
        {"type": job_pb2.JOB_TYPE_UNSPECIFIED},
        {"name": ""},
        {"data": []},
        {"type": job_pb2.PREDICT, "output": ""},
        {"workers": job_pb2.WorkersSpec(min=3, max=2)},
        {"training": job_pb2.TrainingSpec(gradient_reduction="median")},
        {"training": job_pb2.TrainingSpec(local_steps=2, update=job_pb2.SYNC)},
        {"training": job_pb2.TrainingSpec(local_steps=2, update=job_pb2.BOUNDED)},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(EdlError) as caught:
        read(spec(**changes))
    assert caught.value.code == error_pb2.USAGE
    assert caught.value.remedy


def test_an_output_may_be_in_a_store() -> None:
    assert read(spec(output="gs://bucket/model")).output == "gs://bucket/model"
    assert read(spec(output="file:///tmp/model")).output == "/tmp/model"
