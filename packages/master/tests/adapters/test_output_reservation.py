from __future__ import annotations

import json
from pathlib import Path

import pytest

from edl_master.adapters.output_reservation import OutputReservation
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory, output_reservation, supervision


@pytest.fixture
def output(tmp_path: Path) -> str:
    return str(tmp_path / "model")


def job(tmp_path: Path, name: str, state: str = "RUNNING") -> Path:
    """The directory of a job that a supervisor would continue."""
    directory = tmp_path / "jobs" / name
    directory.mkdir(parents=True)
    (directory / job_directory.SPEC).write_text("{}")
    (directory / job_directory.STATUS).write_text(json.dumps({"state": state}))
    supervision.describe(directory, ["supervisor"], ["master"])
    return directory


def reserve_and_return_error(output: str, directory: Path) -> str:
    with pytest.raises(EdlError) as caught:
        OutputReservation(output, directory).hold()
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    assert caught.value.where == output
    return caught.value.what


def test_of_two_jobs_with_one_output_the_second_is_refused(tmp_path: Path, output: str) -> None:
    first = OutputReservation(output, job(tmp_path, "first"))
    first.hold()
    assert "job first" in reserve_and_return_error(output, job(tmp_path, "second"))
    output_reservation.release(output, tmp_path / "jobs" / "second")
    assert len(list(tmp_path.iterdir())) == 2, "it is not that job's"
    output_reservation.release(output, tmp_path / "jobs" / "first")
    first.close()
    assert [path.name for path in tmp_path.iterdir()] == ["jobs"]
    OutputReservation(output, tmp_path / "jobs" / "second").hold()


def test_it_outlives_a_master_and_is_that_of_the_next_one(tmp_path: Path, output: str) -> None:
    directory = job(tmp_path, "first")
    for _ in range(2):
        master = OutputReservation(output, directory)
        master.hold()
        master.close()
        assert "job first" in reserve_and_return_error(output, job(tmp_path, f"other{_}"))


@pytest.mark.parametrize("end", ["FAILED", "CANCELLED", "stopped at once", "deleted"])
def test_a_job_that_does_not_go_on_by_itself_reserves_nothing(
    tmp_path: Path, output: str, end: str
) -> None:
    directory = job(tmp_path, "first", end if end.isupper() else "RUNNING")
    master = OutputReservation(output, directory)
    master.hold()
    master.close()
    if end == "stopped at once":
        supervision.release(directory)
    if end == "deleted":
        directory.rename(tmp_path / "jobs" / "gone")
    OutputReservation(output, job(tmp_path, "second")).hold()


def test_nothing_is_reserved_in_a_store(tmp_path: Path) -> None:
    for name in ("first", "second"):
        OutputReservation("memory://bucket/model", job(tmp_path, name)).hold()
