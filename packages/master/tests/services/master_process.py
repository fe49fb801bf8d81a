"""A master as a process of its own, and the directory of its job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import instance
from fakes.jobs import DEADLINE_S
from google.protobuf import json_format

from edl_proto.v1 import job_pb2
from edl_runtime.local import process_identity
from edl_testing.fork_server import find_fork

RECORDS = 106


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


class Master:
    """A master process and its job's directory.

    Args:
        tmp_path: where the directory is.
        interpreter: runs the master; see ``edl_testing.fork_server``.
    """

    def __init__(self, tmp_path: Path, interpreter: str) -> None:
        self.interpreter = interpreter
        self.job_dir = tmp_path / "home" / "jobs" / "counting"
        (self.job_dir / "logs").mkdir(parents=True)
        self.python = tmp_path / "python"
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{instance.__file__}" "$@"\n')
        self.python.chmod(0o755)
        self._held = tmp_path / "held"
        self.process: subprocess.Popen[bytes] | None = None

    def hold(self, minibatches: int) -> None:
        """Workers do so many minibatches of a task, and then wait until they are released."""
        self._held.with_suffix(".new").write_text(str(minibatches))
        self._held.with_suffix(".new").rename(self._held)

    def release(self) -> None:
        """Let workers go on; those of later masters, too."""
        self._held.unlink()

    def start(self, spec: job_pb2.JobSpec, *prefix: str, **environ: str) -> None:
        (self.job_dir / "spec.json").write_text(json_format.MessageToJson(spec))
        # A fork would not be in the namespaces of the prefix.
        python = sys.executable if prefix else self.interpreter
        with (self.job_dir / "logs" / "master.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, python, "-m", "edl_master", "--job-dir", str(self.job_dir)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "EDL_PYTHON": str(self.python),
                    "EDL_TEST_WEIGHTS": str(RECORDS),
                    "EDL_TEST_HELD": str(self._held),
                    **environ,
                },
            )

    @property
    def pid(self) -> int:
        """The number of the process that does the work."""
        assert self.process is not None
        return find_fork(self.process.pid)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.job_dir / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def instance_records(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.job_dir / "instances").glob("*.json"):
            with contextlib.suppress(OSError):
                found.append(json.loads(path.read_text()))
        return found

    def log(self) -> str:
        return (self.job_dir / "logs" / "master.log").read_text()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for record in self.instance_records():
            if fd := process_identity.Process(record["pid"], record["start_time"]).open():
                process_identity.send(fd, signal.SIGKILL)
                os.close(fd)


def alive(records: list[dict[str, Any]]) -> list[int]:
    return [record["pid"] for record in records if process_identity.is_running(record["pid"])]


def wait_for_failure(master: Master, code: str) -> dict[str, Any]:
    """The error of a job that could not be started."""
    assert master.wait() == 1
    status = master.status()
    assert status["state"] == "FAILED"
    error: dict[str, Any] = status["error"]
    assert error["code"] == code, error
    assert error["what"]
    assert error["where"]
    assert error["remedy"]
    assert not (master.job_dir / "master.json").exists()
    assert master.instance_records() == []
    events = (master.job_dir / "events.jsonl").read_text().splitlines()
    assert json.loads(events[-1])["kind"] == "JobFailed"
    return error


def failed_later(master: Master) -> dict[str, Any]:
    """The error of a job whose next master could not be started."""
    assert master.wait() == 1
    status = master.status()
    assert status["state"] == "FAILED"
    error: dict[str, Any] = status["error"]
    return error
