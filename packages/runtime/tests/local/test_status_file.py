"""The state of a job, from what its master and its supervisor wrote."""

from __future__ import annotations

from pathlib import Path

from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import supervision
from edl_runtime.local.job_status import read_status

ERROR = {"code": "MASTER_LOST", "what": "the job's master ended", "where": "master.log"}


def test_without_files_the_status_is_empty(tmp_path: Path) -> None:
    assert read_status(tmp_path) == job_pb2.JobStatus()
    (tmp_path / "status.json").write_text("{")
    assert read_status(tmp_path) == job_pb2.JobStatus()


def test_a_master_that_was_given_up_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"name": "lost", "state": "RUNNING"}')
    supervision.write_report(tmp_path, {"error": ERROR, "finished_at": "2026-01-01T00:00:00Z"})
    found = read_status(tmp_path)
    assert (found.name, found.state) == ("lost", job_pb2.FAILED)
    assert found.error.code == ErrorCode.MASTER_LOST
    assert found.finished_at == "2026-01-01T00:00:00Z"


def test_the_master_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "SUCCEEDED"}')
    supervision.write_report(tmp_path, {"error": ERROR})
    assert read_status(tmp_path).state == job_pb2.SUCCEEDED
