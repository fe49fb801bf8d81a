"""Files of a job's directory: whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edl_master.adapters.job_directory import JobDirectory, to_json
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2


def test_a_directory_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EdlError) as caught:
        JobDirectory(tmp_path / "nowhere").lock.hold()
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    with pytest.raises(EdlError) as caught:
        JobDirectory(tmp_path).read_spec()
    assert caught.value.code == ErrorCode.JOB_NOT_FOUND


@pytest.mark.parametrize("content", ["{", '{"nmae": "x"}', '{"type": "TRIAN"}'])
def test_a_spec_with_a_mistake_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises(EdlError) as caught:
        JobDirectory(tmp_path).read_spec()
    assert caught.value.code == ErrorCode.USAGE


def test_a_status_names_all_its_fields(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    directory.reserve()
    directory.write_status(job_pb2.JobStatus(name="a", state=job_pb2.RUNNING))
    written = json.loads((tmp_path / "status.json").read_text())
    assert written["state"] == "RUNNING"
    assert written["records_trained"] == "0"
    assert written["workers"] == []
    directory.write_status(job_pb2.JobStatus(state=job_pb2.FAILED), final=True)
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "FAILED"
    # What was kept for this moment is given back.
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_numbers_that_are_none_are_still_json() -> None:
    text = to_json(job_pb2.JobStatus(progress=job_pb2.Progress(loss=float("nan"))))
    assert json.loads(text)["progress"]["loss"] == "NaN"


def test_the_last_sign_of_a_master_names_the_workers_that_ran_and_those_that_ended(
    tmp_path: Path,
) -> None:
    states = ("starting", "loading", "ready", "working", "lost", "leaving", "gone")
    workers = [
        job_pb2.WorkerStatus(id=number, state=state, restarts=10 + number)
        for number, state in enumerate(states)
    ]
    directory = JobDirectory(tmp_path)
    assert directory.last_seen() is None
    directory.write_status(
        job_pb2.JobStatus(incarnation="a", preemptions=3, worker_failures=2, workers=workers)
    )
    seen = directory.last_seen()
    assert seen is not None
    assert (seen.preemptions, seen.worker_failures) == (3, 2)
    assert seen.running == {1: 11, 2: 12, 3: 13, 4: 14}
