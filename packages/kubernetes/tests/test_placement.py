"""The locations that a job names, of which its pods must see each one."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.options import Given, Verb
from edl.core.problem import Problem
from edl.core.submission import Submission, build
from edl_kubernetes.placement import check_locations

IMAGE = "registry.example.com/zoo@sha256:" + "a" * 64


def training(**flags: Any) -> Submission:
    values: dict[str, Any] = {
        "model_zoo": "zoo",
        "model_def": "m",
        "data": "s3://bucket/data",
        "output": "s3://bucket/model",
        "platform": "kubernetes",
        "name": "digits",
        "image": IMAGE,
        "volumes": "claim/files:/files",
        **flags,
    }
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(Verb.TRAIN, given, cwd="/work", environ={})


def predictions(**flags: Any) -> Submission:
    values: dict[str, Any] = {
        "trained_model": "s3://bucket/model",
        "data": "s3://bucket/data",
        "output": "/files/predictions",
        "platform": "kubernetes",
        "name": "digits",
        "image": IMAGE,
        "volumes": "claim/files:/files",
        **flags,
    }
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(Verb.PREDICT, given, cwd="/work", environ={})


@pytest.mark.parametrize("output", ["/files/predictions", "s3://bucket/out"])
def test_predictions_go_to_a_folder_of_a_volume_or_to_a_store(output: str) -> None:
    check_locations(predictions(output=output))


@pytest.mark.parametrize(
    ("option", "location", "what"),
    [
        ("output", "/files", "is a volume itself"),
        ("output", "/elsewhere", "do not see this machine's files"),
        ("output", "/files2/out", "do not see this machine's files"),
        ("data", "/home/ada/data", "do not see this machine's files"),
        ("data_cache", "/home/ada/.cache", "do not see this machine's files"),
    ],
)
def test_a_location_that_pods_cannot_use_is_refused(option: str, location: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        check_locations(predictions(**{option: location}))
    assert what in caught.value.what
    assert caught.value.remedy


def test_profiles_go_where_they_can_be_fetched() -> None:
    check_locations(training(profile="20:40", tensorboard_dir="/files/boards"))
    for places in ({}, {"tensorboard_dir": "boards"}):
        with pytest.raises(Problem) as caught:
            check_locations(training(profile="20:40", **places))
        assert caught.value.remedy
        # TensorBoard files cannot be in a store.
        assert "a folder of a volume" in caught.value.remedy
        assert "s3://" not in caught.value.remedy
