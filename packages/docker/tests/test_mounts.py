"""What containers see of this machine."""

from __future__ import annotations

import pytest

from edl.core.options import Verb
from edl.core.problem import Problem
from edl.core.submission import Submission
from edl_docker.mounts import BindMount, binds

HOME = "/home/me"
JOBS = f"{HOME}/.edl/jobs"


def test_exactly_what_a_training_job_names() -> None:
    job = Submission(
        verb=Verb.TRAIN,
        model_zoo="/work/zoo",
        data=("/data/train/*.recordio", "/data/more.csv", "gs://bucket/x"),
        validation_data=("/data/te[s]t/a/*.recordio",),
        output="/work/results/model",
        init_from="/work/before",
        checkpoint_dir="/work/checkpoints",
        tensorboard_dir="/work/board",
        data_cache="/work/cache",
    )
    assert binds(job, HOME, JOBS) == (
        BindMount("/data"),
        BindMount("/data/more.csv"),
        BindMount("/data/train"),
        BindMount("/work/before"),
        BindMount("/work/board", writable=True),
        BindMount("/work/cache", writable=True),
        BindMount("/work/checkpoints", writable=True),
        BindMount("/work/results", writable=True),
    )


def test_a_place_that_is_read_and_written_is_writable() -> None:
    job = Submission(verb=Verb.TRAIN, data=("/d/*.rio",), output="/d/model")
    assert binds(job, HOME, JOBS) == (BindMount("/d", writable=True),)


@pytest.mark.parametrize(
    "output",
    [
        *("/model", "/etc/model", "/usr/lib/x/model", "/tmp/model", "/var/run/model", "/home/m"),
        *(f"{HOME}/model", "/proc/1/model", "/dev/model", "/model_zoo/x", "/root/model"),
    ],
)
def test_places_that_hold_more_than_a_job_are_refused(output: str) -> None:
    with pytest.raises(Problem) as refused:
        binds(Submission(verb=Verb.TRAIN, data=("/data/x",), output=output), HOME, JOBS)
    assert "--output" in refused.value.what
    assert "results" in refused.value.remedy


@pytest.mark.parametrize(
    "place",
    [f"{HOME}/.edl", JOBS, f"{JOBS}/a", f"{JOBS}/a/identity", f"{JOBS}/a/identity/client"],
)
def test_keys_and_commands_of_jobs_are_never_shown(place: str) -> None:
    with pytest.raises(Problem):
        binds(Submission(verb=Verb.TRAIN, data=(place,), output="/a/b"), HOME, JOBS)
    with pytest.raises(Problem):
        binds(Submission(verb=Verb.TRAIN, data=("/d/x",), output=f"{place}/b"), HOME, JOBS)


def test_a_result_in_the_directory_of_a_job_may_be_read() -> None:
    before = f"{JOBS}/a/checkpoints/a-7"
    job = Submission(verb=Verb.TRAIN, data=("/d/x",), output="/a/b", init_from=before)
    assert BindMount(before) in binds(job, HOME, JOBS)


@pytest.mark.parametrize("output", [f"{HOME}/models/m", "/tmp/x/m", "/dev/shm/x/m", "/srv/x/m"])
def test_folders_of_a_job_s_own_are_shown(output: str) -> None:
    job = Submission(verb=Verb.TRAIN, data=("/data/x",), output=output)
    assert BindMount(output.rpartition("/")[0], writable=True) in binds(job, HOME, JOBS)


def test_data_of_a_pattern_at_the_root_is_refused() -> None:
    with pytest.raises(Problem):
        binds(Submission(verb=Verb.TRAIN, data=("/*/x.recordio",), output="/a/b"), HOME, JOBS)
