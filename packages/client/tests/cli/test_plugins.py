"""Packages that extend edl: the example works, and one that does not harms no other command."""

from __future__ import annotations

import importlib.metadata
import re
import sys

import pytest
from conftest import Attempt, Edl, assert_told, write_distribution

from edl import data_api
from edl.core import plugins
from edl.entry_points import EntryPoint, find_entry_points

BROKEN = "raise RuntimeError('it fell apart')\n"


@pytest.fixture
def broken(edl: Edl) -> Edl:
    """The command, with a package whose module of entries cannot be imported."""
    folder = edl.place / "installed"
    groups = {"edl.commands": {"bad": "bad:A"}, "edl.platforms": {"worse": "bad:B"}}
    write_distribution(folder, "edl_bad", groups)
    (folder / "bad.py").write_text(BROKEN)
    edl.extra["PYTHONPATH"] = str(folder)
    return edl


def test_help_lists_a_command_without_importing_it(example: Edl) -> None:
    listed = example("--help").out
    watch = listed.partition("Watch and control jobs:")[2].partition("Model files")[0]
    assert "greet      greet a job" in watch
    done = example.run("--help", env={**example.env, "PYTHONVERBOSE": "1"})
    assert "import 'edl_example.entries'" in done.err
    assert "import 'edl_example.command'" not in done.err


def test_a_job_runs_on_a_platform_of_another_package(example: Edl) -> None:
    example(*example.job("--name", "one", "--platform", "nice"))
    assert example("greet", "one").out == "Hello one on nice!\n"
    assert "one" in example("list", "-o", "name").out
    assert "nice" in example("train", "--help").out


def test_a_job_is_sent_to_a_tracker_of_another_package(example: Edl) -> None:
    told_first = example.run(*example.job("--name", "one", "--tracker", "lines"))
    assert told_first.code == 2
    assert "EXAMPLE_LINES is not set" in told_first.err
    example.extra["EXAMPLE_LINES"] = str(example.place / "lines")
    example(*example.job("--name", "one", "--tracker", "lines"))
    lines = (example.place / "lines").read_text().splitlines()
    assert lines[0] == "job one"
    assert lines[-1] == "end FINISHED"
    assert "is not one of mlflow, lines" in example.run("track", "one", "--tracker", "x").err


def test_a_broken_package_is_named_and_breaks_nothing_else(broken: Edl) -> None:
    reason = "of edl-bad 1.0 does not work: RuntimeError: it fell apart"
    for args in (("bad",), broken.job("--platform", "worse")):
        done = broken.run(*args)
        assert done.code == 2, str(done)
        assert reason in done.err
        assert "Repair or update edl-bad, or uninstall it." in done.err
        assert "Traceback" not in done.err
    assert re.search("bad +Repair or update edl-bad", broken("--help").out)
    broken(*broken.job("--name", "one"))
    listed = broken("list", "-o", "name")
    assert listed.out == "one\n"
    assert listed.err.count(f"platform worse {reason}") == 1


def test_a_name_that_two_packages_have_is_neither_s(edl: Edl) -> None:
    folder = edl.place / "installed"
    for name in ("edl_one", "edl_two"):
        entries = {"twice": f"{name}:A", "train": f"{name}:A"}
        write_distribution(folder, name, {"edl.commands": entries})
    edl.extra["PYTHONPATH"] = str(folder)
    done = edl.run("twice")
    assert done.code == 2, str(done)
    assert "the command edl twice is in edl-one and edl-two" in done.err
    edl(*edl.job("--name", "one"))  # what the client has itself is replaced by nothing


@pytest.mark.parametrize(
    ("args", "distribution"),
    [
        (("sql",), "edl-sql"),
        (("trace",), "edl-watch"),
        (("zoo", "verify", "x"), "edl-images"),
        (("data", "convert", "t.csv"), "edl-convert"),
        (("data", "inspect"), "edl-convert"),
        (("data", "load"), "edl-sql"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    distribution: str,
) -> None:
    monkeypatch.setattr(plugins, "find_entry_points", _only_of_the_client)
    needs = f"needs {distribution}, which is not installed"
    assert_told(attempt(*args), 2, needs, f"pip install {distribution}")
    assert f"pip install {distribution}" in attempt(*args[: len(args) > 1], "--help").out


def test_the_access_to_images_names_its_package(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "find_entry_points", _only_of_the_client)
    built = ("zoo", "build", "--model-zoo", "zoo", "--repository", "r.test/x", "--builder", "b:1")
    assert_told(attempt(*built), 2, "the image builder needs edl-images", "pip install edl-images")


def test_the_page_of_all_jobs_names_its_package(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "find_entry_points", _only_of_the_client)
    assert_told(attempt("dashboard", "--all"), 2, "needs edl-watch", "pip install edl-watch")


def test_a_tracker_that_is_not_installed_is_named(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "find_entry_points", _only_of_the_client)
    assert_told(attempt(tracker="mlflow"), 2, "the tracker mlflow needs edl-mlflow", "pip install")


def test_a_platform_that_is_not_installed_is_named(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "find_entry_points", _only_of_the_client)
    needs = "the platform kubernetes needs edl-kubernetes, which is not installed"
    assert_told(attempt(platform="kubernetes"), 2, needs, "pip install edl-kubernetes")
    assert_told(attempt("list", "--namespace", "n"), 2, needs)
    monkeypatch.setenv("EDL_PLATFORM", "kubernetes")
    assert_told(attempt("list"), 2, needs)
    assert attempt("list", "--platform", "processes").code == 0


def _only_of_the_client(group: str) -> tuple[EntryPoint, ...]:
    return tuple(each for each in find_entry_points(group) if each.distribution == "edl-client")


def test_the_api_of_data_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data_api._PROVIDERS, "load_data", ("edl-sql", "no_such_package.api"))
    with pytest.raises(AttributeError, match="load_data needs edl-sql, which is not installed"):
        _ = data_api.load_data


def test_entry_points_are_those_of_python() -> None:
    assert find_entry_points("edl.platforms")
    for group in ("edl.commands", "edl.platforms", "edl.trackers"):
        found = {(each.name, each.target) for each in find_entry_points(group)}
        expected = importlib.metadata.entry_points(group=group)
        assert found == {(each.name, each.value) for each in expected}


def test_a_builder_that_is_not_installed_is_reported(edl: Edl) -> None:
    edl.extra = {
        "EDL_BUILDER_COMMAND": f"{sys.executable} -S -E -m edl_builder",
        "EDL_BASE_IMAGE": "base:1",
    }
    done = edl.run("zoo", "build", "--model-zoo", "zoo", "--repository", "127.0.0.1:1/x")
    assert done.code == 11, str(done)
    assert "not installed" in done.err
    assert "edl-client[docker]" in done.err
