"""From a job's specification to the settings of its master."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fakes.jobs import complete_spec

from edl_master.config import job_config
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Replicated, Sync
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder


def training(**fields: object) -> job_pb2.TrainingSpec:
    complete = {
        "num_epochs": 1,
        "update": job_pb2.ASYNC,
        "local_steps": 1,
        "keep_checkpoints": 3,
    }
    return job_pb2.TrainingSpec(**{**complete, **fields})


def read(message: job_pb2.JobSpec, **environ: str) -> job_config.Config:
    return job_config.read(message, Path("/jobs/a"), environ)


def test_the_specification_is_used() -> None:
    found = read(
        complete_spec(
            minibatch_size=64,
            records_per_task=1000,
            workers=job_pb2.WorkersSpec(min=2, max=5),
            failures=job_pb2.FailureSpec(
                task_attempts=7, allow_dead_letters=True, worker_crashes=4, stall_timeout_s=3600
            ),
            serving=job_pb2.ServingSpec(host="0.0.0.0", metrics_auth="none"),
            training=training(
                num_epochs=4,
                evaluation_steps=10,
                seed=3,
                shuffle=True,
                checkpoint_dir="/checkpoints",
                checkpoint_steps=20,
                keep_checkpoints=9,
            ),
            tensorboard_dir="/board",
            worker_grace_s=2.5,
            snapshot_interval_s=30,
        )
    )
    settings = found.job_settings(records=10)
    assert (settings.minibatch_size, settings.records_per_task) == (64, 1000)
    assert (settings.min_workers, settings.max_workers) == (2, 5)
    assert (settings.task_attempts, settings.allow_dead_letters) == (7, True)
    assert settings.worker_crashes == 4
    assert (settings.num_epochs, settings.seed, settings.shuffle) == (4, 3, True)
    assert (settings.evaluation_steps, settings.checkpoint_steps) == (10, 20)
    assert settings.timings.worker_grace_s == 2.5
    assert settings.timings.stall.minimum_s == 3600
    assert settings.snapshot_interval_s == 30
    assert not settings.epoch_barrier
    assert not settings.export
    assert (found.host, found.tensorboard_dir) == ("0.0.0.0", Path("/board"))
    assert found.checkpoint_dir == Path("/checkpoints")
    assert found.keep_checkpoints == 9


def test_the_master_chooses_the_length_of_tasks_from_the_data() -> None:
    settings = read(complete_spec(minibatch_size=32)).job_settings(records=100_000)
    assert settings.records_per_task == 64 * 32


def test_processes_are_told_where_their_identities_are(tmp_path: Path) -> None:
    def config() -> job_config.Config:
        return job_config.read(complete_spec(), tmp_path, {})

    assert config().identities is None
    assert config().identity_arguments(Role.WORKER, 0) == [], "a job of an earlier version"
    IdentityFolder(tmp_path / "identity", "counting").create([(Role.MASTER, None)])
    path = tmp_path / "identity" / "worker-7" / "identity.pem"
    assert config().identity_arguments(Role.WORKER, 7) == ["--identity", str(path)]
    assert path.exists()


def test_the_environment_names_the_interpreter_of_workers() -> None:
    assert read(complete_spec()).python == sys.executable
    assert read(complete_spec(), EDL_PYTHON="/opt/python").python == "/opt/python"


def test_the_update_mode_is_that_of_the_specification() -> None:
    sync = read(complete_spec(training=training(update=job_pb2.SYNC, grads_to_wait=4)))
    assert sync.update_mode(Reduction.SUM) == Sync(4, Reduction.SUM)
    assert sync.job_settings(100).epoch_barrier
    for updates in (3, 0):
        bounded = training(update=job_pb2.BOUNDED, max_staleness=updates)
        assert read(complete_spec(training=bounded)).update_mode(Reduction.MEAN) == Bounded(updates)
    for steps in (3, 1):
        found = read(complete_spec(training=training(local_steps=steps)))
        assert found.update_mode(Reduction.MEAN) == Async(steps)


def test_the_model_decides_how_it_is_trained() -> None:
    open_ = read(complete_spec(training=training(update=job_pb2.AUTO)))
    table = TableSpec("rows", 3, Initial(Distribution.CONSTANT, 0.0, 0.0), 1)
    assert open_.update_mode(Reduction.MEAN) == Replicated()
    assert open_.update_mode(Reduction.MEAN, [table]) == Async()
    assert not open_.job_settings(100).replicated, "until a worker has loaded it"


@pytest.mark.parametrize("replicated", [False, True])
def test_a_job_that_continues_has_decided(*, replicated: bool) -> None:
    mode = Replicated() if replicated else Async()
    for update in (job_pb2.AUTO, job_pb2.REPLICATED if replicated else job_pb2.ASYNC):
        config = read(complete_spec(training=training(update=update)))
        continued = config.continue_in(replicated=replicated)
        assert continued.update_mode(Reduction.MEAN) == mode
        assert continued.may_replicate is replicated


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"type": 17}, "job type"),
        ({"minibatch_size": 0}, "minibatch_size"),
        ({"workers": job_pb2.WorkersSpec(min=3, max=2)}, "workers.min"),
        ({"training": training(gradient_reduction="median")}, "gradient reduction"),
        (
            {"training": training(local_steps=2, update=job_pb2.SYNC, grads_to_wait=1)},
            "local steps",
        ),
        (
            {"training": training(local_steps=2, update=job_pb2.BOUNDED, max_staleness=1)},
            "local steps",
        ),
        ({"training": training(update=17)}, "update mode"),
        ({"training": training(overlap=True, local_steps=2)}, "--overlap"),
        (
            {"training": training(overlap=True, update=job_pb2.SYNC, grads_to_wait=1)},
            "--overlap",
        ),
        ({"serving": job_pb2.ServingSpec(host="127.0.0.1", metrics_auth="all")}, "metrics_auth"),
        ({"training": training(wire_precision=17)}, "wire precision"),
        ({"training": training(parameter_servers=257)}, "parameter servers"),
        (
            {"training": training(checkpoint_dir="gs://bucket/x"), "tensorboard_dir": "gs://b"},
            "gs:",
        ),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(EdlError) as caught:
        read(complete_spec(**changes))
    assert caught.value.code == ErrorCode.USAGE
    assert named in caught.value.what
    assert caught.value.remedy


def test_an_output_may_be_in_a_store() -> None:
    assert read(complete_spec(output="gs://bucket/model")).output == "gs://bucket/model"
    assert read(complete_spec(output="file:///tmp/model")).output == "/tmp/model"
