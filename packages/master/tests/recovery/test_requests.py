"""Commands that outlive the master that acknowledged them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from edl_master.adapters import job_directory as files
from edl_master.adapters.job_directory import JobDirectory
from edl_master.core.events import LearningRateRequested, ScaleRequested, StopRequested
from edl_master.recovery.requests import RecordedRequests
from edl_proto.errors import EdlError, ErrorCode


def test_without_commands_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert RecordedRequests(JobDirectory(tmp_path)).events(1, 2, 0) == ()


def test_the_next_master_finds_what_was_acknowledged(tmp_path: Path) -> None:
    RecordedRequests(JobDirectory(tmp_path)).record_scale(1, 4)
    later = RecordedRequests(JobDirectory(tmp_path))
    assert later.events(1, 2, 0) == (ScaleRequested(1, 4),)
    assert later.events(1, 4, 0) == (), "its snapshot knows already"
    later.record_stop("enough")
    assert later.events(1, 2, 0) == (ScaleRequested(1, 4), StopRequested("enough"))
    recorded = json.loads((tmp_path / "requests.json").read_bytes())
    assert recorded == {"workers": {"min": 1, "max": 4}, "stop": {"reason": "enough"}}


def test_the_next_master_sets_a_learning_rate_that_its_snapshot_does_not_have(
    tmp_path: Path,
) -> None:
    requests = RecordedRequests(JobDirectory(tmp_path))
    requests.record_learning_rate(0.01, 2)
    assert requests.events(1, 1, 1) == (LearningRateRequested(0.01, 2),)
    assert requests.events(1, 1, 2) == (), "callbacks may have changed it since"


def test_a_command_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is flushed before it gets its name, and the name before the answer."""
    calls: list[str] = []
    flush, rename = os.fsync, Path.replace

    def noted_flush(fd: int) -> None:
        calls.append("flush folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "flush file")
        flush(fd)

    def noted_rename(path: Path, target: Path) -> Path:
        calls.append(f"rename to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_flush)
    monkeypatch.setattr(Path, "replace", noted_rename)
    requests = RecordedRequests(JobDirectory(tmp_path))
    for record in (lambda: requests.record_stop("enough"), lambda: requests.record_scale(1, 2)):
        calls.clear()
        record()
        assert calls == ["flush file", "rename to requests.json", "flush folder"]


def test_a_job_on_a_full_disk_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reserved space is used; only without it the command is refused."""
    directory = JobDirectory(tmp_path)
    directory.reserve()
    reserve = tmp_path / ".reserve"
    write = files.replace_file

    def full(path: Path, content: bytes, *, durable: bool = False) -> None:
        if reserve.exists():
            raise OSError(28, "No space left on device")
        write(path, content, durable=durable)

    monkeypatch.setattr(files, "replace_file", full)
    RecordedRequests(directory).record_stop("enough")
    assert RecordedRequests(directory).events(1, 1, 0) == (StopRequested("enough"),)

    def never(path: Path, content: bytes, *, durable: bool = False) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace_file", never)
    with pytest.raises(EdlError) as refused:
        RecordedRequests(directory).record_stop("again")
    assert refused.value.code == ErrorCode.DISK_FULL
