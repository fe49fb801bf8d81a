"""A check ends with a verdict or with a reason, whatever becomes of its process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edl.adapters.model_file_check import check
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2

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


def reason(code: error_pb2.ErrorCode.ValueType, **limits: float) -> EdlError:
    with pytest.raises(EdlError) as caught:
        check(SPEC, **limits)
    assert caught.value.code == code, caught.value
    assert caught.value.remedy
    return caught.value


def test_the_verdict_is_the_last_object(worker: Path) -> None:
    write(worker, f"echo '{{'; echo '[1]'; {VERDICT}; echo chatter")
    assert check(SPEC).facts["model"] == "m"


def test_what_the_model_file_left_behind_is_not_waited_for(worker: Path) -> None:
    write(worker, f"sleep 50 & echo $! > {worker.parent}/left; {VERDICT}")
    started = time.monotonic()
    check(SPEC)
    assert time.monotonic() - started < 40
    (worker.parent / "left").read_text()


def test_a_check_that_waits_for_ever(worker: Path) -> None:
    write(worker, "exec sleep 600")
    error = reason(error_pb2.TIMED_OUT, idle_s=0.5)
    assert "computed nothing" in error.what
    assert error.where == "mine"


def test_a_check_that_computes_for_ever(worker: Path) -> None:
    write(worker, "while :; do :; done")
    assert "has computed for" in reason(error_pb2.TIMED_OUT, busy_s=0.2).what


def test_a_check_that_computes_is_not_idle(worker: Path) -> None:
    """It is given time so often, on a busy machine too, and computes for longer."""
    write(worker, f"i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done; {VERDICT}")
    check(SPEC, idle_s=1.5)


def test_a_process_that_dies(worker: Path) -> None:
    write(worker, "echo 'oneDNN custom operations are on' >&2; echo why >&2; kill -SEGV $$")
    error = reason(error_pb2.MODEL_IMPORT)
    assert "SIGSEGV" in error.what
    assert error.detail == "why"
    write(worker, "kill -KILL $$")
    assert "memory" in reason(error_pb2.MODEL_IMPORT).remedy
    write(worker, "exit 3")
    assert "exit code 3" in reason(error_pb2.MODEL_IMPORT).what


def test_an_interpreter_without_the_worker(worker: Path) -> None:
    write(worker, "echo 'python: No module named edl_worker' >&2; exit 1")
    assert "pip install" in reason(error_pb2.SYSTEM).remedy


def test_an_interpreter_that_is_none(worker: Path) -> None:
    assert reason(error_pb2.USAGE).where == "$EDL_PYTHON"
