"""What another user puts into a folder of jobs runs nothing, whichever command looks there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Edl

from edl.adapters import git_checkout, image_record
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.git_source import GitSource, GitUrl


@pytest.fixture
def trap(edl: Edl) -> Path:
    """A job whose supervisor leaves this file; others can write to its directory."""
    left, job = edl.place / "ran", edl.home / "jobs" / "evil"
    (job / "logs").mkdir(parents=True)
    (job / "spec.json").write_text(json.dumps({"name": "evil"}))
    commands = {"supervisor": ["/bin/sh", "-c", f"touch {left}"], "master": ["true"]}
    (job / "supervisor.json").write_text(json.dumps(commands))
    if os.geteuid() == 0:
        os.chown(job, 65534, 65534)
    else:
        job.chmod(0o777)
    return left


@pytest.mark.parametrize(
    "command",
    [
        *("status evil", "stop evil", "logs evil", "events evil", "wait evil", "resume evil"),
        *("scale evil --workers 2", "dashboard evil", "export evil", "delete evil --yes"),
    ],
)
def test_no_command_runs_what_another_user_has_left(edl: Edl, trap: Path, command: str) -> None:
    done = edl.run(*command.split())
    assert done.code != 0
    assert "other users can change the directory of job evil" in done.err, str(done)
    assert not trap.exists()


def test_the_list_has_only_jobs_of_the_user(edl: Edl, trap: Path) -> None:
    assert "evil" not in edl("list").out
    assert not trap.exists()


def test_a_folder_that_others_can_change_takes_no_job(edl: Edl) -> None:
    jobs = edl.home / "jobs"
    jobs.mkdir(parents=True)
    jobs.chmod(0o777)
    done = edl.run(*edl.job("--name", "mine"))
    assert done.code == 10, str(done)
    assert "other users can change the folder of jobs" in done.err
    assert f"chmod o-w {jobs}" in done.err
    assert not list(jobs.iterdir())
    jobs.chmod(0o755)
    edl(*edl.job("--name", "mine"))


def test_a_process_that_masks_no_mode_sees_its_own_jobs(edl: Edl) -> None:
    edl(*edl.job("--name", "mine"), umask=0)
    assert edl("list", "-o", "name", umask=0).out.split() == ["mine"]


def test_copies_of_repositories_that_others_can_change_are_not_run(tmp_path: Path) -> None:
    zoo = GitSource(GitUrl("zoos.example", 443, "/team/zoo.git"), "0" * 40, "")
    with pytest.raises(EdlError):  # there is no such host
        git_checkout.fetch(zoo, tmp_path)
    (place,) = tmp_path.iterdir()
    (place / zoo.ref).mkdir()
    assert git_checkout.fetch(zoo, tmp_path) == place / zoo.ref
    place.chmod(0o777)
    with pytest.raises(EdlError, match="other users can change") as refused:
        git_checkout.fetch(zoo, tmp_path)
    assert refused.value.code == ErrorCode.FORBIDDEN


def test_images_that_others_have_recorded_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path))
    mask = os.umask(0)
    try:
        image_record.add("mine")
    finally:
        os.umask(mask)
    assert image_record.read() == {"mine"}
    assert (tmp_path / "images").stat().st_mode & 0o777 == 0o644
    (tmp_path / "images").chmod(0o666)
    assert image_record.read() == frozenset()
