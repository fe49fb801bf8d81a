"""Folders that others can change, and what lies in them: no command there is ever run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edl_runtime.local import supervision
from edl_runtime.local.ownership import is_own

ANOTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def give_away(folder: Path) -> None:
    os.chown(folder, ANOTHER, ANOTHER)


WAYS: dict[str, Callable[[Path], object]] = {
    "all users may write": lambda folder: folder.chmod(0o707),
    "all users may write above": lambda folder: folder.parent.chmod(0o777),
}
GIVEN: dict[str, Callable[[Path], object]] = {
    "another user's": give_away,
    "below another user's": lambda folder: give_away(folder.parent),
}


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """A job whose supervisor leaves a mark."""
    path = tmp_path / "jobs" / "w"
    (path / "logs").mkdir(parents=True)
    path.chmod(0o700)
    (path / "spec.json").write_text("{}")
    supervision.describe(path, ["/bin/sh", "-c", f"touch {tmp_path}/ran"], ["true"])
    return path


@pytest.mark.parametrize(
    "way",
    [*WAYS, *(pytest.param(each, marks=as_root) for each in GIVEN)],
)
def test_no_command_of_others_is_run(job_dir: Path, tmp_path: Path, way: str) -> None:
    assert supervision.is_wanted(job_dir)
    assert is_own(job_dir)
    (WAYS | GIVEN)[way](job_dir)
    assert not is_own(job_dir)
    assert supervision.commands(job_dir) is None
    assert not supervision.ensure(job_dir)
    assert not (tmp_path / "ran").exists()


def test_a_link_to_a_folder_of_ones_own_is_not_followed(job_dir: Path) -> None:
    """The user who made the link can change its target."""
    link = job_dir.parent / "link"
    link.symlink_to(job_dir)
    assert supervision.commands(link) is None
    assert not is_own(job_dir.parent / "nothing")


def test_a_folder_that_others_may_read_or_only_add_to_is_fine(job_dir: Path) -> None:
    job_dir.chmod(0o755)
    job_dir.parent.chmod(0o1777)  # as /tmp: no user can replace another's folder
    assert is_own(job_dir)
