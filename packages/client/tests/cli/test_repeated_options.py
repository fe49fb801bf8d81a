"""Options that are given several times, flags with values, and words in wrong places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Attempt, assert_told

from edl.cli import submit
from edl.core.options import BY_NAME, Given

Flags = Mapping[str, Given]


def read(monkeypatch: pytest.MonkeyPatch, *given: str) -> Flags:
    seen: list[Mapping[str, Given]] = []

    def take(verb: object, flags: Mapping[str, Given], form: object, **more: Any) -> None:
        seen.append(flags)

    monkeypatch.setattr(submit, "submit", take)
    done = CliRunner().invoke(submit.train, given)
    assert done.exit_code == 0, done.output
    (flags,) = seen
    return flags


@pytest.mark.parametrize("option", ["labels", "annotations", "worker_resources", "node_selector"])
def test_pairs_of_several_options_add_up(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    # The first of two labels was lost, and with it the queue that a job was to wait for.
    flag = BY_NAME[option].flag
    flags = read(monkeypatch, flag, "cpu=1", flag, "memory=2,nvidia.com/gpu=3")
    pairs = BY_NAME[option].kind.read(flags[option].value)
    assert dict(pairs) == {"cpu": "1", "memory": "2", "nvidia.com/gpu": "3"}


def test_parameters_and_names_of_several_options_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    params = ("--params", "units=[1, 2]", "--params", "", "--params", "rate=0.1")
    secrets = ("--image-pull-secrets", "one", "--image-pull-secrets", "two,three")
    flags = read(monkeypatch, *params, *secrets)
    assert BY_NAME["params"].kind.read(flags["params"].value) == "units=[1, 2],rate=0.1"
    names = BY_NAME["image_pull_secrets"].kind.read(flags["image_pull_secrets"].value)
    assert names == ("one", "two", "three")


@pytest.mark.parametrize("option", ["labels", "node_selector", "worker_resources"])
def test_a_key_with_two_values_is_named(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    flag = BY_NAME[option].flag
    flags = read(monkeypatch, flag, "cpu=1,memory=2", flag, "memory=3")
    with pytest.raises(ValueError, match="it contains the key memory twice"):
        BY_NAME[option].kind.read(flags[option].value)


def test_a_name_that_is_there_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = read(monkeypatch, "--image-pull-secrets", "one,two", "--image-pull-secrets", "two")
    with pytest.raises(ValueError, match="it contains the name two twice"):
        BY_NAME["image_pull_secrets"].kind.read(flags["image_pull_secrets"].value)


def test_a_flag_with_a_value(attempt: Attempt) -> None:
    done = attempt("train", "--shuffle", "false")
    assert_told(done, 2, "unexpected extra argument", "write --no-shuffle, for example")


def test_of_several_values_the_last_counts_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr("edl.render.terminal.warning", told.append)
    flags = read(monkeypatch, "--num-workers", "2", "--data", "a", "--data", "b", "--shuffle")
    assert not told
    flags = read(monkeypatch, "--num-workers", "2", "--num-workers", "3")
    assert flags["num_workers"].value == "3"
    assert told == ["--num-workers is given more than once, and only the last one counts"]


def test_parameters_that_the_shell_has_separated(attempt: Attempt) -> None:
    done = attempt("train", "--params", "units=8", "rate=0.1", "depth=2")
    assert_told(done, 2, "unexpected extra argument", '"NAME=VALUE, rate=0.1, depth=2"')


def test_a_path_for_the_name_of_a_job(attempt: Attempt, tmp_path: Path) -> None:
    assert_told(attempt("export", str(tmp_path)), 6, "takes the name of a job")
