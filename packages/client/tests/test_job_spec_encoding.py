"""From a submission to the specification that master and workers read."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.options import BY_NAME, OPTIONS, Given, Option, Verb
from edl.core.options.value_types import Choice, Flag
from edl.core.submission import build
from edl.job_spec import encode_spec
from edl_proto.job_spec import check_complete
from edl_proto.v1 import job_pb2

MINIMUM: dict[Verb, dict[str, Any]] = {
    Verb.TRAIN: {"model_zoo": "zoo", "model_def": "a.B", "data": "d", "output": "out"},
    Verb.EVALUATE: {"trained_model": "model", "data": "d"},
    Verb.PREDICT: {"trained_model": "model", "data": "d", "output": "out"},
}
NEEDED: dict[str, dict[str, Any]] = {
    "allow_gaps": {"data": ["kafka://broker/clicks"], "window": 1000},
    "grads_to_wait": {"update": "sync"},
    "max_staleness": {"update": "bounded"},
    "evaluation_steps": {"validation_data": "v"},
    "checkpoint_steps": {"checkpoint_dir": "c"},
    "keep_checkpoints": {"checkpoint_dir": "c"},
    "image": {"platform": "docker"},
    "data_cache_size": {"data_cache": "c"},
}


def spec_of(verb: Verb, **values: Any) -> job_pb2.JobSpec:
    given = {name: Given(value, name) for name, value in ({"name": "a"} | MINIMUM[verb]).items()}
    given |= {name: Given(value, name) for name, value in values.items()}
    job = build(verb, given, cwd="/work", environ={})
    return encode_spec(job, "/jobs/a", "2026-01-01T00:00:00Z")


def field(spec: job_pb2.JobSpec, path: str) -> Any:
    value: Any = spec
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("verb", list(Verb))
def test_the_least_that_can_be_submitted_is_complete(verb: Verb) -> None:
    check_complete(spec_of(verb))


@pytest.mark.parametrize("update", ["sync", "bounded"])
def test_every_mode_of_updates_is_complete(update: str) -> None:
    check_complete(spec_of(Verb.TRAIN, update=update))


def test_all_reduce_is_a_mode_of_updates() -> None:
    assert spec_of(Verb.TRAIN).training.update == job_pb2.AUTO
    spec = spec_of(Verb.TRAIN, strategy="allreduce", num_workers="1:4")
    check_complete(spec)
    training = spec.training
    assert training.update == job_pb2.REPLICATED
    assert (training.local_steps, training.overlap) == (1, False)
    assert (training.parameter_servers, training.embedding_threshold) == (0, 0)
    assert training.wire_precision == job_pb2.FLOAT32


def test_every_mode_of_updates_can_be_chosen() -> None:
    words = BY_NAME["update"].kind
    assert isinstance(words, Choice)
    chosen = {spec_of(Verb.TRAIN, update=word).training.update for word in words.values}
    chosen |= {spec_of(Verb.TRAIN, strategy=each).training.update for each in ("allreduce", "auto")}
    assert chosen == set(job_pb2.UpdateMode.values()) - {job_pb2.UPDATE_MODE_UNSPECIFIED}


@pytest.mark.parametrize(
    ("option", "verb"),
    [
        pytest.param(option, verb, id=f"{verb}-{option.name}")
        for option in OPTIONS
        for verb in Verb
        if option.spec and verb in option.verbs
    ],
)
def test_each_option_is_in_the_specification(option: Option, verb: Verb) -> None:
    needed = NEEDED.get(option.name, {})
    value = not option.default if isinstance(option.kind, Flag) else option.example.strip('"')
    without, with_option = spec_of(verb, **needed), spec_of(verb, **needed, **{option.name: value})
    assert field(with_option, option.spec) != field(without, option.spec)


def test_values_keep_their_units_and_names() -> None:
    spec = spec_of(
        Verb.TRAIN,
        keep_page="2m",
        snapshot_interval="1.5s",
        num_workers="1:4",
        wire_precision="bfloat16",
        data=["a,b.csv", "c"],
    )
    assert (spec.serving.keep_page_s, spec.snapshot_interval_s) == (120, 1.5)
    assert (spec.workers.min, spec.workers.max) == (1, 4)
    assert spec.training.wire_precision == job_pb2.BFLOAT16
    assert list(spec.data) == ["/work/a,b.csv", "/work/c"]
    assert spec.tensorboard_dir == "/jobs/a/tensorboard"
    assert not spec.serving.save_page, "nothing but the output is written unasked"
    assert not spec.model.HasField("learning_rate")
    assert spec_of(Verb.TRAIN, set="learning-rate=0").model.HasField("learning_rate")
