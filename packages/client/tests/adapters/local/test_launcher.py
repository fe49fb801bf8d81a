"""Starting a master that does not come up: nothing of it is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Edl, eventually

from edl.adapters.local import launcher
from edl.adapters.local.job_store import JobStore
from edl.adapters.local.launcher import LocalLauncher, supervisor_command
from edl.adapters.local.processes import ProcessRuntime
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import supervision
from edl_testing import fork_server

MASTER = (sys.executable, "-m", fork_server.FAKE_JOB)


def test_a_restarted_master_that_never_listens_is_ended_too(
    tidy: Edl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is killed, the second one is its supervisor's; both are gone afterwards."""
    tidy.part = "late"
    for name, value in tidy.env.items():
        monkeypatch.setenv(name, value)
    store = JobStore(tidy.home / "jobs", ProcessRuntime())
    spec = job_pb2.JobSpec(name="late", type=job_pb2.TRAIN)
    assert store.create("late", spec, supervisor_command(), tidy.master)
    assert tidy.job_dir("late").stat().st_mode & 0o077 == 0, "others may open it"
    starts = tidy.job_dir("late") / "starts"

    def clock() -> float:
        """The deadline passes as soon as the second one has been started."""
        return 15.1 if starts.exists() and starts.read_text() == "xx" else 0.0

    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    # Time stands still, so only its first look for a supervisor starts one.
    with pytest.raises(EdlError) as caught:
        LocalLauncher(store, tidy.master).start("late", deadline_s=15.0)
    assert caught.value.code == ErrorCode.MASTER_LOST
    assert "did not listen within 15 s" in caught.value.what
    assert starts.read_text() == "xx"
    assert supervision.supervisor_pid(tidy.job_dir("late")) is None
    eventually(lambda: not supervision.has_master(tidy.job_dir("late")), "the second one is gone")


@pytest.mark.parametrize(
    ("withdraw", "what", "remedy"),
    [
        (lambda store: supervision.release(store.path("early")), "stopped", "edl resume early"),
        (lambda store: store.delete("early"), "deleted", "Submit"),
    ],
)
def test_a_job_that_another_command_withdraws_while_it_starts_is_not_waited_for(
    tmp_path: Path, withdraw: Callable[[JobStore], None], what: str, remedy: str
) -> None:
    store = JobStore(tmp_path / "jobs", ProcessRuntime())
    spec = job_pb2.JobSpec(name="early", type=job_pb2.TRAIN)
    assert store.create("early", spec, supervisor_command(), MASTER)
    withdraw(store)
    with pytest.raises(EdlError) as caught:
        LocalLauncher(store, MASTER).start("early", deadline_s=0.5)
    assert caught.value.code == ErrorCode.STOPPED
    assert f"was {what} before its master listened" in caught.value.what
    assert remedy in caught.value.remedy
