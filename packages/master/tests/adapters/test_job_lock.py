"""One master at a time holds the directory of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_master.adapters.job_lock import JobLock
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2


def test_a_directory_is_held_by_one_master_at_a_time(tmp_path: Path) -> None:
    first, second = JobLock(tmp_path), JobLock(tmp_path)
    first.hold()
    with pytest.raises(EdlError) as caught:
        second.hold()
    assert caught.value.code == error_pb2.JOB_EXISTS
    first.release()
    second.hold()
    second.release()
