"""A check ends with a verdict or with a reason, whatever becomes of its process."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edl.adapters.local import model_file_check
from edl.adapters.local.model_file_check import check
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2

SPEC = job_pb2.JobSpec(model=job_pb2.ModelSpec(model_def="mine"))
VERDICT = 'echo \'{"errors": [], "model": "m"}\''


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in place of the worker's interpreter; a test writes it."""
    script = tmp_path / "python"
    monkeypatch.setenv("EDL_PYTHON", str(script))
    return script


def write(worker: Path, body: str) -> None:
    worker.write_text(f"#!/bin/sh\n{body}\n")
    worker.chmod(0o755)


def reason(code: ErrorCode.ValueType, **limits: float) -> EdlError:
    with pytest.raises(EdlError) as caught:
        check(SPEC, **limits)
    assert caught.value.code == code, caught.value
    assert caught.value.remedy
    return caught.value


def test_the_verdict_is_the_last_object(worker: Path) -> None:
    write(worker, f"echo '{{'; echo '[1]'; {VERDICT}; echo chatter")
    assert check(SPEC).facts["model"] == "m"


def test_what_the_model_file_left_behind_is_not_waited_for(worker: Path) -> None:
    write(worker, f"sleep 600 & echo $! > {worker.parent}/left; {VERDICT}")
    started = time.monotonic()
    check(SPEC)
    assert time.monotonic() - started < 300
    (worker.parent / "left").read_text()


def test_what_a_killed_check_has_copied_is_removed(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, clock, readings = worker.parent / "note", time.monotonic, itertools.count()
    write(worker, f"mktemp > {note}; mktemp -d >> {note}; exec sleep 600")

    def later_once_all_is_copied() -> float:
        has_both = note.exists() and note.read_text().count("\n") == 2
        # Each time: it may have both before the clock is read for the first time.
        return clock() + (2 * model_file_check.IDLE_S * next(readings) if has_both else 0.0)

    monkeypatch.setattr(model_file_check.time, "monotonic", later_once_all_is_copied)
    reason(ErrorCode.TIMED_OUT)
    file, folder = map(Path, note.read_text().split())
    assert not file.exists()
    assert not folder.exists()


def test_a_check_that_waits_for_ever(worker: Path) -> None:
    write(worker, "exec sleep 600")
    error = reason(ErrorCode.TIMED_OUT, idle_s=0.5)
    assert "computed nothing" in error.what
    assert error.where == "mine"


def test_a_check_that_computes_for_ever(worker: Path) -> None:
    write(worker, "while :; do :; done")
    assert "has computed for" in reason(ErrorCode.TIMED_OUT, busy_s=0.2).what


class SlowCheck:
    """The process of a check that takes a minute; time passes while it is waited for."""

    pid = 0
    now = 0.0

    def wait(self, seconds: float) -> int:
        self.now += seconds
        if self.now < 60.0:
            raise subprocess.TimeoutExpired("check", seconds)
        return 0


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.004, 1.0])
def test_a_check_that_computes_a_little_is_not_idle(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """On a busy machine it gets little time."""
    process = SlowCheck()
    monkeypatch.setattr(model_file_check.time, "monotonic", lambda: process.now)
    monkeypatch.setattr(
        model_file_check.process_identity, "cpu_seconds", lambda pid: share * process.now
    )
    if share < 0.001:
        with pytest.raises(EdlError, match="computed nothing"):
            model_file_check._await(process, "mine", idle_s=30.0, busy_s=900.0)
    else:
        model_file_check._await(process, "mine", idle_s=30.0, busy_s=900.0)


def test_a_process_that_dies(worker: Path) -> None:
    write(worker, "echo 'oneDNN custom operations are on' >&2; echo why >&2; kill -SEGV $$")
    error = reason(ErrorCode.MODEL_IMPORT)
    assert "SIGSEGV" in error.what
    assert error.detail == "why"
    write(worker, "kill -KILL $$")
    assert "memory" in reason(ErrorCode.MODEL_IMPORT).remedy
    write(worker, "exit 3")
    assert "exit code 3" in reason(ErrorCode.MODEL_IMPORT).what


def test_an_interpreter_without_the_worker(worker: Path) -> None:
    # Without site-packages it finds no edl_worker, and says so by itself.
    write(worker, f'exec {sys.executable} -S -E "$@"')
    assert "pip install" in reason(ErrorCode.SYSTEM).remedy


def test_an_interpreter_that_is_none(worker: Path) -> None:
    assert reason(ErrorCode.USAGE).where == "$EDL_PYTHON"
