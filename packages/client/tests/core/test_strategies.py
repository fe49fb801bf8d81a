"""The strategies of training, and the options that go with each."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.options import BY_NAME, Given, Verb
from edl.core.options.value_types import WorkerRange
from edl.core.problem import Problem
from edl.core.submission import Submission, build

TRAIN: dict[str, Any] = {"model_zoo": "zoo", "model_def": "m", "data": "d", "output": "out"}


def make(values: dict[str, Any], **in_a_file: object) -> Submission:
    given = {name: Given(value, "edl.toml", explicit=False) for name, value in in_a_file.items()}
    given |= {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(Verb.TRAIN, given, cwd="/work", environ={})


def make_and_return_problem(values: dict[str, Any], **in_a_file: object) -> Problem:
    with pytest.raises(Problem) as caught:
        make(values, **in_a_file)
    assert caught.value.code == "USAGE"
    return caught.value


ALLREDUCE: dict[str, Any] = {**TRAIN, "strategy": "allreduce", "num_workers": 2}


def test_the_model_decides_by_default() -> None:
    assert make(TRAIN) == make({**TRAIN, "strategy": "auto"})
    assert make(TRAIN, update="async").strategy == "parameter-server", "the options say so"
    named = make({**TRAIN, "strategy": "parameter-server", "update": "sync"})
    assert (named.strategy, named.update) == ("parameter-server", "sync")


@pytest.mark.parametrize("platform", ["processes", "docker"])
def test_workers_of_one_machine_train_by_all_reduce(platform: str) -> None:
    job = make({**ALLREDUCE, "platform": platform})
    assert (job.strategy, job.update) == ("allreduce", "replicated")
    assert job.num_workers == WorkerRange(2, 2)
    assert (job.grads_to_wait, job.max_staleness, job.local_steps) == (0, 0, 1)
    assert (job.overlap, job.wire_precision) == (False, "float32")
    assert (job.parameter_servers, job.embedding_threshold) == (0, 0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("update", "sync"),
        ("update", "async"),
        ("grads_to_wait", 2),
        ("max_staleness", 3),
        ("overlap", True),
        ("local_steps", 4),
        ("wire_precision", "bfloat16"),
        ("embedding_threshold", 1 << 20),
        ("parameter_servers", 1),
    ],
)
def test_all_reduce_refuses_options_of_the_parameter_server(option: str, value: object) -> None:
    problem = make_and_return_problem({**ALLREDUCE, option: value})
    flag = BY_NAME[option].flag
    assert problem.what.startswith(f"{flag} cannot be combined with --strategy allreduce: ")
    assert problem.where == f"--{option}"
    assert problem.remedy == f"Leave {flag} out, or use --strategy parameter-server."


def test_all_reduce_accepts_what_is_true_of_it_anyway() -> None:
    same = {"overlap": False, "local_steps": 1, "parameter_servers": 0, "embedding_threshold": 0}
    assert make({**ALLREDUCE, **same}) == make(ALLREDUCE)


def test_all_reduce_runs_between_machines() -> None:
    assert make({**ALLREDUCE, "platform": "kubernetes"}).platform == "kubernetes"


def test_in_a_settings_file_options_of_the_parameter_server_are_for_other_jobs() -> None:
    of_others = {"update": "sync", "grads_to_wait": 4, "wire_precision": "float16"}
    assert make(ALLREDUCE, **of_others) == make(ALLREDUCE)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("AllreduceStrategy", "allreduce"),
        ("ParameterServerStrategy", "parameter-server"),
        ("Local", "parameter-server"),
    ],
)
def test_strategies_have_the_names_of_elasticdl_too(name: str, strategy: str) -> None:
    assert make({**TRAIN, "strategy": name}).strategy == strategy


def test_the_local_strategy_of_elasticdl_is_one_worker() -> None:
    job = make({**TRAIN, "strategy": "Local"}, num_workers="4")
    assert job.num_workers == WorkerRange(1, 1)
    assert make({**TRAIN, "strategy": "Local", "num_workers": 1}).num_workers.max == 1
    problem = make_and_return_problem({**TRAIN, "strategy": "Local", "num_workers": 2})
    assert problem.what.startswith("--num-workers 2 cannot be combined with the strategy Local")
    assert "--strategy allreduce" in problem.remedy


def test_an_option_on_the_command_line_does_not_change_a_strategy_in_a_settings_file() -> None:
    problem = make_and_return_problem({**TRAIN, "update": "sync"}, strategy="allreduce")
    assert problem.where == "--update"
    with_strategy = {**TRAIN, "update": "sync", "strategy": "parameter-server"}
    assert make(with_strategy, strategy="allreduce").update == "sync"


def test_a_word_that_is_no_strategy() -> None:
    problem = make_and_return_problem({**TRAIN, "strategy": "mirrored"})
    assert "'mirrored' is not one of auto, allreduce, parameter-server" in problem.what


AUTO: dict[str, Any] = {**TRAIN, "strategy": "auto", "num_workers": 2}


@pytest.mark.parametrize("platform", ["processes", "docker", "kubernetes"])
def test_the_model_decides_between_the_strategies(platform: str) -> None:
    job = make({**AUTO, "platform": platform})
    assert (job.strategy, job.update) == ("auto", "auto")
    assert (job.grads_to_wait, job.max_staleness, job.overlap) == (0, 0, False)
    assert job.embedding_threshold == 1 << 20, "by which the model is found to have tables"


@pytest.mark.parametrize(
    ("options", "update"),
    [
        ({"update": "async"}, "async"),
        ({"update": "sync", "grads_to_wait": 2}, "sync"),
        ({"update": "bounded", "max_staleness": 3}, "bounded"),
        ({"overlap": True}, "async"),
        ({"local_steps": 4}, "async"),
        ({"wire_precision": "bfloat16"}, "async"),
        ({"embedding_threshold": 100}, "async"),
        ({"parameter_servers": 1}, "async"),
    ],
)
def test_an_option_of_the_parameter_server_decides_before_the_model(
    options: dict[str, Any], update: str
) -> None:
    job = make({**AUTO, **options})
    assert (job.strategy, job.update) == ("parameter-server", update)
    assert make(AUTO, **options).strategy == "parameter-server", "also in a settings file"


def test_options_that_both_strategies_allow_leave_the_model_its_choice() -> None:
    both = {"overlap": False, "local_steps": 1, "parameter_servers": 0, "embedding_threshold": 0}
    assert make({**AUTO, **both}).strategy == "auto"
