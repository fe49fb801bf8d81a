"""Flag > variable > project file > user file > default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edl.core.options import Given, Verb, options_of
from edl.core.problem import Problem
from edl.settings import cluster_choice, clusters_of, command_section, gather


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "config" / "edl").mkdir(parents=True)
    (tmp_path / "project" / "deep").mkdir(parents=True)
    return tmp_path / "project"


def values(project: Path, verb: Verb = Verb.TRAIN, **given: str) -> dict[str, object]:
    environ = {"HOME": str(project.parent), "XDG_CONFIG_HOME": str(project.parent / "config")}
    flags = {name: Given(v, "--flag") for name, v in given.items() if not name.isupper()}
    environ |= {name: value for name, value in given.items() if name.isupper()}
    found = gather(verb, flags, environ=environ, cwd=project / "deep")
    return {name: entry.value for name, entry in found.items()}


def user_file(project: Path, text: str) -> None:
    (project.parent / "config" / "edl" / "config.toml").write_text(text)


def test_nothing_is_set_where_nothing_is_given(project: Path) -> None:
    assert values(project) == {}


def test_the_nearest_source_wins(project: Path) -> None:
    user_file(project, "num-workers = 1\nseed = 1\nupdate = 'sync'\n")
    (project / "edl.toml").write_text("\ufeffnum_workers = '2:3'\nseed = 2\n")  # as some editors do
    assert values(project) == {"num_workers": "2:3", "seed": 2, "update": "sync"}
    assert values(project, EDL_SEED="3")["seed"] == "3"
    assert values(project, EDL_SEED="3", seed="4")["seed"] == "4"


@pytest.mark.parametrize("name", ["image-public-key", "builder-ca", "metrics-auth"])
def test_a_project_does_not_replace_what_protects_the_user(project: Path, name: str) -> None:
    (project / "edl.toml").write_text(f"{name} = '/theirs'\n[train]\n{name} = '/theirs'\n")
    option = name.replace("-", "_")
    assert values(project)[option] == "/theirs", "the user has no settings"
    user_file(project, f"{name} = '/mine'\n")
    assert values(project)[option] == "/mine"
    assert values(project, **{option: "/flag"})[option] == "/flag"


@pytest.mark.parametrize("platform", ["processes", " Processes"])
def test_a_project_does_not_switch_off_the_check_of_signatures(
    project: Path, platform: str
) -> None:
    (project / "edl.toml").write_text(f"platform = '{platform}'\n")
    user_file(project, "platform = 'docker'\n")
    assert values(project)["platform"] == platform, "the user asks for no signature"
    assert values(project, image_public_key="/mine")["platform"] == "docker"
    user_file(project, "platform = 'docker'\nimage-public-key = '/mine'\n")
    assert values(project)["platform"] == "docker"
    assert values(project, platform="processes")["platform"] == "processes"
    (project / "edl.toml").write_text("platform = 'kubernetes'\n")
    assert values(project)["platform"] == "kubernetes", "its images are checked as well"


def test_a_section_of_a_verb_goes_before_what_all_share(project: Path) -> None:
    (project / "edl.toml").write_text("minibatch-size = 1\n[predict]\nminibatch-size = 256\n")
    assert values(project)["minibatch_size"] == 1
    assert values(project, Verb.PREDICT)["minibatch_size"] == 256


def test_a_section_of_a_command_is_left_to_the_command(project: Path) -> None:
    assert command_section("tune", environ={}, cwd=project) == ({}, "")
    (project / "edl.toml").write_text("[tune]\ntrials = 7\n[tune.search]\nunits = [1, 2]\n")
    section, file = command_section("tune", environ={}, cwd=project)
    assert section == {"trials": 7, "search": {"units": [1, 2]}}
    assert file == str(project / "edl.toml")
    assert values(project) == {}


def test_what_a_verb_does_not_take_is_not_given_to_it(project: Path) -> None:
    (project / "edl.toml").write_text("num-epochs = 3\n")
    assert values(project, Verb.PREDICT, EDL_NUM_EPOCHS="4") == {}


def test_pyproject_has_a_table(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.edl]\nseed = 7\n[tool.edl.train]\nloss = 'l'\n")
    assert values(project) == {"seed": 7, "loss": "l"}
    (project / "deep" / "pyproject.toml").write_text("[tool.other]\n")
    assert values(project)["seed"] == 7


def test_a_table_of_others_is_passed_over_and_one_of_edl_that_is_none_refused(
    project: Path,
) -> None:
    (project / "pyproject.toml").write_text("tool = 1\n")
    assert values(project) == {}
    for text in ("[tool]\nedl = 3\n", "[[tool.edl]]\nseed = 7\n"):
        (project / "pyproject.toml").write_text(text)
        with pytest.raises(Problem, match="not a table"):
            values(project)


def test_places_in_a_file_start_from_its_folder(project: Path) -> None:
    (project / "edl.toml").write_text("model-zoo = 'zoo'\ndata = ['a/*.csv', '/b', 'gs://c/d']\n")
    found = values(project)
    assert found["model_zoo"] == str(project / "zoo")
    assert found["data"] == [str(project / "a/*.csv"), "/b", "gs://c/d"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num-worker = 2", ["--num-worker", "Did you mean --num-workers?"]),
        ("[predict]\nnum-epochs = 2", ["--num-epochs", "edl predict"]),
        ("[other]\nseed = 1", ["--other"]),
        ("name = 'x'", ["cannot be set in a file"]),
        ("seed = ", ["settings file cannot be read"]),
        ("strategy = allreduce", ["at line 1", 'strategy = "allreduce"']),
    ],
)
def test_a_file_that_is_wrong_says_where(project: Path, text: str, words: list[str]) -> None:
    (project / "edl.toml").write_text(text)
    with pytest.raises(Problem) as caught:
        values(project)
    assert str(project / "edl.toml") in caught.value.where
    for word in words:
        assert word in f"{caught.value.what} {caught.value.remedy}"


def test_every_option_but_those_of_one_run_has_a_variable(project: Path) -> None:
    for verb in Verb:
        variables = {option.variable: "x" for option in options_of(verb)}
        names = {option.name for option in options_of(verb)}
        missing = names - values(project, verb, **variables).keys()
        assert missing == names & {"name", "detach", "dry_run", "yes", "trust_model"}


def test_a_value_says_where_it_was_set(project: Path) -> None:
    (project / "edl.toml").write_text("[train]\nseed = 'x'\n")
    environ = {"HOME": str(project), "EDL_LOSS": "l"}
    found = gather(Verb.TRAIN, {}, environ=environ, cwd=project)
    assert found["seed"].where == f"{project / 'edl.toml'}: [train] seed"
    assert found["loss"].where == "$EDL_LOSS"
    assert not found["seed"].explicit


# --- the cluster of commands about jobs ----------------------------------------------------


def chosen_namespace(project: Path, **environ: str) -> str | None:
    """The namespace that commands about jobs look at; None without a cluster."""
    found = cluster_choice({"HOME": str(project.parent), **environ}, project)
    return None if found is None else found.namespace


@pytest.mark.parametrize("section", ["", "[train]", "[evaluate]", "[predict]"])
def test_a_cluster_is_chosen_for_all_verbs_or_for_one(project: Path, section: str) -> None:
    (project / "edl.toml").write_text(f"{section}\nplatform = 'kubernetes'\nnamespace = 'n'\n")
    assert chosen_namespace(project) == "n"
    assert chosen_namespace(project, EDL_PLATFORM="processes") is None


def test_jobs_are_looked_for_in_the_cluster_of_the_options_that_run_them(project: Path) -> None:
    (project / "edl.toml").write_text("platform = 'kubernetes'\nnamespace = 'n'\n")
    with clusters_of({"namespace": "m", "context": "", "num_workers": 2}):
        assert chosen_namespace(project) == "m"
    with clusters_of({"platform": "processes"}):
        assert chosen_namespace(project) is None
    assert chosen_namespace(project) == "n"


def test_a_broken_file_never_changes_the_platform_without_a_word(project: Path) -> None:
    (project / "edl.toml").write_text("platform = ")
    for environ in ({}, {"EDL_PLATFORM": "kubernetes"}):
        with pytest.raises(Problem) as caught:
            chosen_namespace(project, **environ)
        assert caught.value.where == str(project / "edl.toml")
    assert chosen_namespace(project, EDL_PLATFORM="processes") is None, "no file has a say in this"


# --- files of others ---------------------------------------------------------------------------


def as_user(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: number)


@pytest.mark.parametrize("name", ["edl.toml", "pyproject.toml"])
def test_a_project_file_of_another_user_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = "builder = 'evil:1'\n"
    (project / name).write_text(text if name == "edl.toml" else f"[tool.edl]\n{text}")
    assert values(project)["builder"] == "evil:1"
    owner = os.getuid()
    if owner == 0:
        os.chown(project / name, 4711, 4711)
    else:
        as_user(owner + 1, monkeypatch)
    with pytest.raises(Problem, match="of another user") as refused:
        values(project)
    assert refused.value.where == str(project / name)
    assert f"EDL_SAFE_DIRECTORY={project}" in refused.value.remedy
    assert values(project, EDL_SAFE_DIRECTORY=f"/nowhere:{project}")["builder"] == "evil:1"
    if owner == 0:
        assert values(project, SUDO_UID="4711")["builder"] == "evil:1"


def test_a_project_file_behind_a_link_of_another_user_is_refused(
    project: Path, tmp_path: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a link of another user")
    (tmp_path / "mine.toml").write_text("seed = 1\n")
    (project / "edl.toml").symlink_to(tmp_path / "mine.toml")
    assert values(project) == {"seed": 1}
    os.chown(project / "edl.toml", 4711, 4711, follow_symlinks=False)
    with pytest.raises(Problem, match="of another user"):
        values(project)


def test_a_project_file_that_every_user_can_write_is_refused(project: Path) -> None:
    (project / "edl.toml").write_text("seed = 1\n")
    (project / "edl.toml").chmod(0o666)
    with pytest.raises(Problem, match="every user can write"):
        values(project)
    (project / "edl.toml").chmod(0o664)
    project.chmod(0o777)
    with pytest.raises(Problem, match="every user can write"):
        values(project)
    project.chmod(0o1777)  # as /tmp: no user can replace another's file
    assert values(project) == {"seed": 1}


def test_a_project_file_of_root_is_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "edl.toml").write_text("seed = 1\n")
    if os.getuid() != 0:
        pytest.skip("only root can make a file of root")
    as_user(4711, monkeypatch)
    assert values(project) == {"seed": 1}
