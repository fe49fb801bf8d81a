"""Options of jobs that train on streams: windows, topics, and what does not go with them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.options import Given, Verb
from edl.core.options.value_types import RecordsOrDuration, WindowLength
from edl.core.problem import Problem
from edl.core.submission import Submission, build

TRAIN: dict[str, Any] = {"model_zoo": "zoo", "model_def": "regressor.DNN", "data": "train"}
TRAIN |= {"output": "out"}


def make(verb: Verb, values: dict[str, Any]) -> Submission:
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(verb, given, cwd="/work", environ={"HOME": "/home/ada"})


def make_and_return_problem(verb: Verb, values: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        make(verb, values)
    assert caught.value.code == "USAGE"
    return caught.value


@pytest.mark.parametrize("value", ["5000", 5000, WindowLength(records=5000)])
def test_a_window_is_a_number_of_records(value: object) -> None:
    assert RecordsOrDuration().read(value) == WindowLength(records=5000)
    assert RecordsOrDuration().read("1h30m") == WindowLength(seconds=5400), "or a duration"


@pytest.mark.parametrize("text", ["0", "-5", "0.1s", "soon", "", True, 1.5])
def test_what_is_no_window(text: object) -> None:
    with pytest.raises(ValueError, match=r"small|short|not a duration|no window"):
        RecordsOrDuration().read(text)


def test_a_stream_has_no_epochs() -> None:
    assert make(Verb.TRAIN, {**TRAIN, "window": "60s"}).window == WindowLength(seconds=60)
    assert make(Verb.TRAIN, TRAIN).window is None
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, "window": "60s", "num_epochs": 2})
    assert problem.what.startswith("--num-epochs cannot be combined with --window")
    assert problem.where == "--num_epochs"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"data": ["kafka://a/t", "clicks/"], "window": 9},
            "--data: a stream is of files or of topics",
        ),
        (
            {"data": ["kafka://a/t/0/1-5"], "window": 9},
            "--data: kafka://a/t/0/1-5 is a range of a topic",
        ),
        (
            {"data": ["kafka://a/t", "kafka://b/t"], "window": 9},
            "--data: two topics have the name t",
        ),
        ({"data": ["kafka://a"]}, "--data: kafka://a: the address of a topic is kafka://HOST:PORT"),
        ({"allow_gaps": True, "data": ["kafka://a/t"]}, "--allow-gaps has no effect without"),
        ({"allow_gaps": True, "window": 9}, "--allow-gaps has no effect without --window and a"),
    ],
)
def test_topics_that_no_job_can_train_on(options: dict[str, Any], what: str) -> None:
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, **options})
    assert problem.what.startswith(what)


def test_topics_that_jobs_train_on() -> None:
    assert make(Verb.TRAIN, {**TRAIN, "data": ["kafka://a/t", "kafka://b/t"]}).window is None
    two = {"data": ["kafka://a/t", "kafka://a/u?start=2026-11-30"], "window": 9}
    assert make(Verb.TRAIN, {**TRAIN, **two, "allow_gaps": True}).allow_gaps
    assert make(Verb.TRAIN, {**TRAIN, "data": ["kafka://a/t/0/1-5", "more.csv"]}).window is None
