"""What an experiment tracker is told about a job."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core import tracking
from edl.core.job_status import JobState
from edl.core.tracking import Measurement, RunEnd

START_S = 1_700_000_000.0


def details(**more: Any) -> dict[str, Any]:
    points = [{"step": 10, "at_s": 2.0, "value": 0.5}, {"step": 20, "at_s": 3.0, "value": 0.25}]
    return {
        "started_at": "2023-11-14T22:13:20Z",
        "seconds": 4.0,
        "curves": [{"name": "loss", "points": points}],
        "progress": None,
        **more,
    }


def test_parameters_are_the_options_by_their_dotted_names() -> None:
    found = tracking.parameters(
        {"name": "digits", "training": {"num_epochs": 2, "shuffle": True}, "data": ["a", "b"]}
    )
    assert found == {
        "name": "digits",
        "training.num_epochs": "2",
        "training.shuffle": "True",
        "data": "a, b",
    }


def test_parameters_have_the_strategy_of_training() -> None:
    assert tracking.parameters({"training": {"update": "REPLICATED", "seed": 1}}) == {
        "training.strategy": "allreduce",
        "training.seed": "1",
    }


def test_parameters_have_nothing_empty_no_passwords_and_no_pods() -> None:
    found = tracking.parameters(
        {
            "output": "",
            "export": None,
            "data": ["s3://user:secret@host/bucket"],
            "kubernetes": {"worker_pod": '{"env": [{"name": "KEY", "value": "secret"}]}'},
            "containers": {"engine": "unix:///run/docker.sock"},
            "job_dir": "/home/me/.edl/jobs/digits",
        }
    )
    assert found == {"data": "s3://host/bucket"}


def test_measurements_have_the_version_and_the_time() -> None:
    assert tracking.measurements(details(), {}) == [
        Measurement("loss", 0.5, 10, START_S + 2),
        Measurement("loss", 0.25, 20, START_S + 3),
    ]


def test_measurements_that_are_known_are_left_out() -> None:
    known = {"loss": 10}
    assert [one.step for one in tracking.measurements(details(), known)] == [20]
    assert tracking.measurements(details(), {"loss": 20}) == []


def test_progress_is_measured_too_but_not_before_the_first_update() -> None:
    progress = {"parameter_version": 20, "epoch": 2, "records_per_s": 100.0}
    found = tracking.measurements(details(curves=[], progress=progress), {})
    assert found == [
        Measurement("epoch", 2.0, 20, START_S + 4),
        Measurement("records_per_s", 100.0, 20, START_S + 4),
    ]
    progress["parameter_version"] = 0
    assert tracking.measurements(details(curves=[], progress=progress), {}) == []


def test_what_is_not_finite_is_left_out() -> None:
    curve = {"name": "loss", "points": [{"step": 1, "at_s": 0.0, "value": None}]}
    assert tracking.measurements(details(curves=[curve]), {}) == []


def test_a_job_that_has_not_started_has_no_measurements() -> None:
    assert tracking.measurements(details(started_at=""), {}) == []


def test_names_of_metrics_are_those_that_trackers_accept() -> None:
    assert tracking.metric_name("precision@5 (val)") == "precision_5 _val_"


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (JobState.SUCCEEDED, RunEnd.FINISHED),
        (JobState.CANCELLED, RunEnd.KILLED),
        (JobState.FAILED, RunEnd.FAILED),
        (JobState.LOST, RunEnd.FAILED),
    ],
)
def test_a_run_ends_as_its_job_does(state: JobState, end: RunEnd) -> None:
    assert tracking.run_end(state) is end
