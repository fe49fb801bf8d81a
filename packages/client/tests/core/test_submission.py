"""From options to a whole job; one test for each thing that can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.image_build import service_of
from edl.core.options import BY_NAME, OPTIONS, Given, Option, Verb, options_of
from edl.core.options.value_types import (
    Flag,
    RateSetting,
    StepRange,
    Steps,
    WorkerRange,
)
from edl.core.problem import Problem
from edl.core.submission import Submission, build

ENVIRON = {"HOME": "/home/ada"}
TRAIN: dict[str, Any] = {
    "model_zoo": "zoo",
    "model_def": "regressor.DNN",
    "data": "train/*.recordio",
    "output": "out",
}
USE: dict[str, Any] = {"trained_model": "model", "data": "gs://b/*.recordio", "output": "out"}


def make(verb: Verb, values: dict[str, Any]) -> Submission:
    given = {name: Given(value, f"--{name}") for name, value in values.items()}
    return build(verb, given, cwd="/work", environ=ENVIRON)


def make_and_return_problem(verb: Verb, values: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        make(verb, values)
    assert caught.value.code == "USAGE"
    return caught.value


def test_four_options_make_a_training_job() -> None:
    job = make(Verb.TRAIN, TRAIN)
    assert (job.model_zoo, job.output) == ("/work/zoo", "/work/out")
    assert job.data == ("/work/train/*.recordio",)
    assert job.num_workers == WorkerRange(1, 1)
    assert (job.minibatch_size, job.num_epochs, job.update) == (32, 1, "auto")
    assert job.shuffle
    assert not job.allow_dead_letters


def test_every_option_has_a_place_in_the_submission() -> None:
    slots = set(Submission.__dataclass_fields__)
    assert {option.name for option in OPTIONS} <= slots
    assert slots - {"verb", "records_image", "builder_from_project", "code"} == {
        option.name for option in OPTIONS
    }


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_documents_itself(option: Option) -> None:
    assert option.help.endswith(".")
    assert option.help[0].isupper()
    if isinstance(option.kind, Flag):
        assert isinstance(option.default, bool)
    else:
        assert option.kind.read(option.example.strip('"')) != option.default


def test_a_synchronous_step_waits_for_all_workers_unless_told_otherwise() -> None:
    sync = {**TRAIN, "update": "sync", "num_workers": "2:4"}
    assert make(Verb.TRAIN, sync).grads_to_wait == 4
    assert make(Verb.TRAIN, {**sync, "grads_to_wait": "2"}).grads_to_wait == 2
    bounded = {**TRAIN, "update": "bounded", "num_workers": 3}
    assert make(Verb.TRAIN, bounded).max_staleness == 3
    assert make(Verb.TRAIN, {**bounded, "overlap": True}).max_staleness == 6
    assert make(Verb.TRAIN, {**bounded, "max_staleness": 0}).max_staleness == 0


def test_pushing_overlaps_with_computing_only_where_asked() -> None:
    for update in ("async", "bounded", "sync"):
        assert not make(Verb.TRAIN, {**TRAIN, "update": update}).overlap
    assert "may learn less" in BY_NAME["overlap"].help, "it has a price"
    assert make(Verb.TRAIN, {**TRAIN, "overlap": True}).overlap
    assert make(Verb.TRAIN, {**TRAIN, "num_workers": 2, "overlap": True}).overlap
    assert make(Verb.TRAIN, {**TRAIN, "update": "bounded", "overlap": True}).overlap
    assert not make(Verb.TRAIN, {**TRAIN, "overlap": False, "update": "sync"}).overlap


def test_python_values_are_read_as_well_as_texts() -> None:
    job = make(
        Verb.TRAIN,
        {
            **TRAIN,
            "data": ["a", "b,c.csv"],
            "num_workers": WorkerRange(1, 2),
            "params": {"lr": 0.1, "units": [1, 2]},
            "shuffle": False,
            "keep_page": 1.5,
        },
    )
    assert job.data == ("/work/a", "/work/b,c.csv")
    assert job.num_workers == WorkerRange(1, 2)
    assert job.params == "lr=0.1, units=[1, 2]"
    assert not job.shuffle
    assert job.keep_page == 1.5


def test_a_scraper_needs_a_token_but_on_a_cluster() -> None:
    cluster = {**TRAIN, "platform": "kubernetes"}
    assert make(Verb.TRAIN, TRAIN).metrics_auth == "token"
    assert make(Verb.TRAIN, cluster).metrics_auth == "none"
    assert make(Verb.TRAIN, {**cluster, "metrics_auth": "token"}).metrics_auth == "token"


@pytest.mark.parametrize(
    ("platform", "gpus"), [("processes", "each"), ("docker", "none"), ("kubernetes", "")]
)
def test_gpus_are_used_where_they_need_no_set_up(platform: str, gpus: str) -> None:
    assert make(Verb.PREDICT, {**USE, "platform": platform}).gpus == gpus
    if platform != "kubernetes":
        assert make(Verb.TRAIN, {**TRAIN, "platform": platform, "gpus": "shared"}).gpus == "shared"


def test_pods_ask_for_gpus_as_for_other_resources() -> None:
    problem = make_and_return_problem(
        Verb.TRAIN, {**TRAIN, "platform": "kubernetes", "gpus": "each"}
    )
    assert "--gpus has no effect on Kubernetes" in problem.what
    assert "nvidia.com/gpu=1" in problem.remedy


@pytest.mark.parametrize("verb", list(Verb))
def test_missing_options_are_all_named_with_an_example(verb: Verb) -> None:
    problem = make_and_return_problem(verb, {})
    for option in options_of(verb):
        assert (option.flag in problem.what) == option.required
    assert f"edl {verb}" in problem.remedy


def test_an_example_is_quoted_once() -> None:
    assert make_and_return_problem(Verb.TRAIN, {**TRAIN, "data": ""}).remedy.endswith(
        ' --data "train/*.recordio"'
    )
    assert (
        '--params "hidden' in make_and_return_problem(Verb.TRAIN, {**TRAIN, "params": "x"}).remedy
    )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("num_workers", "3:1", ["3:1", "above"]),
        ("num_workers", "0", ["0 is too small"]),
        ("num_workers", "many", ["'many'"]),
        ("num_workers", True, ["True"]),
        ("update", "later", ["later", "sync, async, bounded"]),
        ("update", "replicated", ["replicated", "sync, async, bounded"]),
        ("minibatch_size", "-4", ["-4", "the minimum is 1"]),
        ("timeout", "0", ["0 is too short", "the minimum is 0.1s"]),
        ("minibatch_size", "10000000", ["too large"]),
        ("minibatch_size", 2.5, ["2.5"]),
        ("num_epochs", "many", ["many"]),
        ("num_epochs", True, ["True"]),
        ("seed", "-1", ["too small"]),
        ("task_attempts", "0", ["too small"]),
        ("dashboard_port", "70000", ["too large"]),
        ("keep_page", "soon", ["soon", "90s"]),
        ("timeout", "-1", ["-1"]),
        ("shuffle", "perhaps", ["perhaps"]),
        ("data_format", "arrow", ["arrow", "tfrecord"]),
        ("gradient_reduction", "max", ["max", "mean, sum"]),
        ("params", "a=open('x')", ["a"]),
        ("data", "", ["empty"]),
        ("data", " ", ["empty"]),
        ("data", ["a", ""], ["empty"]),
        ("data", 5, ["int"]),
        ("data", [], ["empty"]),
        ("model_def", " ", ["empty"]),
        ("name", "No Good", ["No Good", "upper-case"]),
        ("name", "x" * 60, ["60 characters"]),
        ("tensorboard_dir", "gs://bucket/x", ["gs://"]),
        ("output", "a\0b", ["NUL"]),
        ("output", "s3://", ["s3://", "after the scheme"]),
        ("data", ["a", "gs:///"], ["gs:///", "after the scheme"]),
        ("checkpoint_dir", "file://", ["file://", "after the scheme"]),
        ("model_zoo", "ssh://git.company.com/models", ["only https"]),
        ("image", "team/zoo:latest", ["digest"]),
    ],
)
def test_a_value_that_cannot_be(option: str, value: object, words: list[str]) -> None:
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, option: value})
    for word in words:
        assert word in problem.what
    assert problem.where == f"--{option}" or option == "params"


@pytest.mark.parametrize(
    ("values", "needs"),
    [
        ({"grads_to_wait": 2}, "--update sync"),
        ({"max_staleness": 2}, "--update bounded"),
        ({"overlap": True, "update": "sync"}, "--update async"),
        ({"overlap": True, "update": "bounded", "max_staleness": 0}, "--max-staleness 1"),
        ({"overlap": True, "local_steps": 2}, "--local-steps 1"),
        ({"local_steps": 2, "update": "sync"}, "--update async"),
        ({"local_steps": 2, "update": "bounded"}, "--update async"),
        ({"evaluation_steps": 5}, "--validation-data"),
        ({"checkpoint_steps": 5}, "--checkpoint-dir"),
        ({"keep_checkpoints": 5}, "--checkpoint-dir"),
    ],
)
def test_an_option_without_effect_is_refused(values: dict[str, Any], needs: str) -> None:
    assert needs in make_and_return_problem(Verb.TRAIN, {**TRAIN, **values}).what


@pytest.mark.parametrize(
    ("option", "place", "output"),
    [
        ("checkpoint_dir", "runs/m", "runs/m"),
        ("checkpoint_dir", "runs/m/checkpoints", "./runs/../runs/m"),
        ("checkpoint_dir", "s3://b/m/checkpoints", "s3://b/m/"),
        ("tensorboard_dir", "/work/runs/m/boards", "runs/m"),
        ("data_cache", "~/m/cache", "/home/ada/m"),
    ],
)
def test_a_job_writes_nothing_into_its_output_before_its_end(
    option: str, place: str, output: str
) -> None:
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, option: place, "output": output})
    assert BY_NAME[option].flag in problem.what
    assert "--output" in problem.what
    assert problem.where == f"--{option}"
    beside = problem.remedy.split()[-1]
    assert make(Verb.TRAIN, {**TRAIN, option: beside, "output": output})


def test_an_output_may_be_next_to_checkpoints_and_among_them() -> None:
    for output in ("run", "runs/m"):
        assert make(Verb.TRAIN, {**TRAIN, "checkpoint_dir": "runs", "output": output})


def test_in_a_settings_file_such_an_option_waits_for_its_jobs() -> None:
    given = {name: Given(value, name) for name, value in TRAIN.items()}
    given["grads_to_wait"] = Given(2, "edl.toml", explicit=False)
    assert build(Verb.TRAIN, given, cwd="/work", environ=ENVIRON).grads_to_wait == 0


def test_a_timeout_needs_a_client_that_watches() -> None:
    assert (
        "--detach"
        in make_and_return_problem(Verb.TRAIN, {**TRAIN, "detach": True, "timeout": "5m"}).what
    )


def test_an_option_of_another_verb_names_that_verb() -> None:
    problem = make_and_return_problem(Verb.PREDICT, {**USE, "num_epochs": 3})
    assert "edl predict has no option --num-epochs" in problem.what
    assert "edl train" in problem.remedy


def test_an_unknown_option_has_a_suggestion() -> None:
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, "num_worker": 3})
    assert "--num-worker" in problem.what
    assert problem.remedy == "Did you mean --num-workers?"


def test_a_made_name_is_used_only_when_none_was_given() -> None:
    assert make(Verb.TRAIN, TRAIN).with_name("3f2a").name == "regressor-dnn-3f2a"
    assert make(Verb.TRAIN, {**TRAIN, "name": "mine"}).with_name("3f2a").name == "mine"
    assert make(Verb.PREDICT, USE).with_name("3f2a").name == "predict-model-3f2a"


def test_flags_and_variables_of_the_table_are_unique() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    assert BY_NAME["model_def"].flag == "--model-def"
    assert BY_NAME["model_def"].variable == "EDL_MODEL_DEF"


@pytest.mark.parametrize(
    ("output", "given", "format"),
    [
        ("out", {}, "recordio"),
        ("p.recordio", {}, "recordio"),
        ("p.csv", {}, "csv"),
        ("s3://b/p.parquet", {}, "parquet"),
        ("p.jsonl", {"format": "JSONL"}, "jsonl"),
        ("v1.2", {"format": "csv"}, "csv"),
    ],
)
def test_the_name_of_the_output_tells_the_format_of_predictions(
    output: str, given: dict[str, str], format: str
) -> None:
    assert make(Verb.PREDICT, USE | {"output": output} | given).format == format


@pytest.mark.parametrize("output", ["p.json", "tables/p.xlsx", "p.CSV", "s3://b/p.tsv"])
def test_an_output_is_not_named_like_a_format_that_predictions_cannot_have(output: str) -> None:
    problem = make_and_return_problem(Verb.PREDICT, USE | {"output": output})
    assert output.rpartition(".")[2] in problem.what
    assert ".jsonl" in problem.remedy
    assert make(Verb.PREDICT, USE | {"output": output, "format": "csv"}).format == "csv"


def test_a_format_that_the_output_s_name_contradicts() -> None:
    problem = make_and_return_problem(Verb.PREDICT, USE | {"output": "p.csv", "format": "parquet"})
    assert "does not match --output p.csv" in problem.what


def test_names_to_keep() -> None:
    assert make(Verb.PREDICT, USE | {"keep": "id, name"}).keep == ("id", "name")
    assert make(Verb.PREDICT, USE | {"keep": ["a,b"]}).keep == ("a,b",)
    for wrong in ("id,,name", "id,id", ""):
        assert "--keep" in make_and_return_problem(Verb.PREDICT, USE | {"keep": wrong}).what


@pytest.mark.parametrize("from_project", [True, False])
def test_it_is_known_whether_a_project_file_names_the_builder(from_project: bool) -> None:
    given = {name: Given(value, name) for name, value in TRAIN.items()}
    given["builder"] = Given("b:1", "edl.toml", explicit=False, from_project=from_project)
    job = build(Verb.TRAIN, given, cwd="/", environ={})
    assert service_of(job).from_project is from_project


@pytest.mark.parametrize(
    ("text", "steps"),
    [("20:40", StepRange(20, 40)), (7, StepRange(7, 7)), (StepRange(1, 2), StepRange(1, 2))],
)
def test_a_range_of_steps_includes_both_ends(text: object, steps: StepRange) -> None:
    assert Steps().read(text) == steps


@pytest.mark.parametrize("text", ["40:20", "0:5", "1:1001", ":", "1:2:3", True])
def test_what_is_no_range_of_steps(text: object) -> None:
    with pytest.raises(ValueError, match=r"write 20:40|small|1000 steps|not an integer"):
        Steps().read(text)


@pytest.mark.parametrize(
    "value",
    [
        "learning-rate=0.001",
        "learning_rate=1e-3",
        " learning-rate = 0.001",
        {"learning_rate": 0.001},
    ],
)
def test_a_learning_rate_is_set_by_its_name(value: object) -> None:
    assert make(Verb.TRAIN, {**TRAIN, "set": value}).set == 0.001


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("momentum=0.9", "momentum cannot be set, only learning-rate"),
        ({"learning_rate": 0.1, "momentum": 0.9}, "'0.1,momentum=0.9' is not a learning rate"),
        ("0.001", "0.001 cannot be set"),
        ("learning-rate", "'' is not a learning rate"),
        ("learning-rate=fast", "'fast' is not a learning rate"),
        ("learning-rate=-1", "'-1' is not a learning rate"),
        ("learning-rate=nan", "'nan' is not a learning rate"),
        (0.001, "expected text, not float"),
    ],
)
def test_no_other_value_is_a_learning_rate(value: object, why: str) -> None:
    problem = make_and_return_problem(Verb.TRAIN, {**TRAIN, "set": value})
    assert why in problem.what
    assert "--set learning-rate=0.0003" in problem.remedy


def test_a_rate_of_zero_is_a_rate() -> None:
    assert RateSetting().read("learning-rate=0") == 0
