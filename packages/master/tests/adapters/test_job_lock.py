"""One master at a time holds the directory of a job."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from edl_master.adapters import job_lock
from edl_master.adapters.job_lock import JobLock
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory, supervision


def test_a_directory_is_held_by_one_master_at_a_time(tmp_path: Path) -> None:
    first, second = JobLock(tmp_path), JobLock(tmp_path)
    first.hold()
    with pytest.raises(EdlError) as caught:
        second.hold()
    assert caught.value.code == ErrorCode.JOB_EXISTS
    first.release()
    second.hold()
    second.release()


@pytest.mark.parametrize("in_container", [False, True])
def test_a_master_starts_the_supervisor_that_its_job_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_container: bool
) -> None:
    """It may be the only process of the job. In a container it cannot start any outside.

    One check that fails, as by an error of the disk, is not the last.
    """
    looked, failures = threading.Event(), [OSError("no locks available")]
    watch = supervision.SupervisorWatch

    class Watch(watch):
        def check(self, now: float | None = None) -> bool:
            looked.set()
            if failures:
                raise failures.pop()
            return super().check(now)

    monkeypatch.setattr(supervision, "SupervisorWatch", Watch)
    monkeypatch.setattr(job_lock, "_CHECK_EVERY_S", 0.01)
    monkeypatch.setattr(job_lock, "_SUPERVISOR_MISSING_S", 0.0)
    (tmp_path / "logs").mkdir()
    (tmp_path / "spec.json").write_text("{}")
    supervision.describe(
        tmp_path, ["sh", "-c", f"printf x >> {tmp_path}/starts; sleep 9"], ["true"]
    )
    if in_container:
        (tmp_path / job_directory.CONTAINER).write_text("{}")
    lock = JobLock(tmp_path)
    lock.hold()
    lock.watch_supervisor()
    assert looked.wait(0.0 if in_container else 60.0) is not in_container
    deadline = time.monotonic() + 200
    while not in_container and not (tmp_path / "starts").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    supervision.release(tmp_path)
    lock.release()
