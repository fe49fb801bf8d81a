"""A master that starts: when it leaves the job alone."""

from __future__ import annotations

from pathlib import Path

from edl_master.app import startup
from edl_runtime.local import job_directory, supervision


def test_a_master_leaves_a_job_that_was_stopped_while_it_started(tmp_path: Path) -> None:
    """The user's command could not end this process: the user did not know of it yet."""
    supervision.describe(tmp_path, ["supervisor"], ["master"])
    supervision.release(tmp_path)
    assert startup.run(tmp_path) == job_directory.DIRECTORY_TAKEN
    assert not (tmp_path / job_directory.STATUS).exists()


def test_a_job_without_a_supervisor_is_not_taken_for_a_stopped_one(tmp_path: Path) -> None:
    """A pod has none; here the master goes on, and finds that the job has no description."""
    assert startup.run(tmp_path) == startup.FAILED
    assert (tmp_path / job_directory.STATUS).exists()
