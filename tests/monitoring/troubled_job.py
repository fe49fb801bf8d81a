"""A training job for tests of its metrics, and what goes wrong in it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, Edl, eventually, write_numbers

from edl_runtime.local import supervision
from edl_testing.fork_server import find_fork

NAME = "my-job"

_STOPPED_S, _GOING_ON_S = 1.5, 0.5
"""Of a parameter server on a slow machine. The master gives one up that is silent for 5 s."""


class TroubledJob:
    """A job of two workers and three parameter servers, with a checkpoint every 100 updates.

    Its snapshots are ten minutes apart. Its workers are stuck until ``go_on``.

    Args:
        edl: starts it.
        place: an empty folder.
    """

    def __init__(self, edl: Edl, place: Path) -> None:
        self._edl = edl
        self._ended: set[int] = set()
        self._trouble = place / "trouble"
        self._trouble.mkdir()
        edl.env["EDL_TEST_TROUBLE"] = str(self._trouble)
        self.get_stuck()
        (self._trouble / "records").touch()
        zoo = place / "zoo"
        zoo.mkdir()
        for source in ("model_zoo/counting.py", "model_zoo/counting_rows.py"):
            shutil.copy(ROOT / source, zoo)
        shutil.copy(ROOT / "tests/zoo/troubled.py", zoo)
        data = str(write_numbers(place / "data", 400))
        edl(
            *("train", "--model-zoo", str(zoo), "--model-def", "counting_rows"),
            *("--dataset-fn", "troubled.dataset_fn", "--data", data, "--num-epochs", "1000"),
            *("--minibatch-size", "1", "--records-per-task", "10", "--num-workers", "2"),
            *("--parameter-servers", "3", "--snapshot-interval", "10m"),
            *("--checkpoint-dir", str(place / "checkpoints"), "--checkpoint-steps", "100"),
            *("--validation-data", data, "--allow-dead-letters"),
            *("--output", str(place / "model"), "--name", NAME, "--detach"),
        )

    @property
    def target(self) -> str:
        """Host and port of its page."""
        written = json.loads((self._edl.job_dir(NAME) / "master.json").read_text())
        return str(written["dashboard_url"]).removeprefix("http://").strip("/")

    def get_stuck(self) -> None:
        """No worker makes progress any more."""
        (self._trouble / "stuck").touch()

    def go_on(self) -> None:
        """The opposite."""
        (self._trouble / "stuck").unlink()

    def end_a_worker(self, by: signal.Signals) -> None:
        """One that trains, and that was not ended before."""
        pid = eventually(lambda: self._at_work() - self._ended, "a worker trains").pop()
        self._ended.add(pid)
        os.kill(pid, by)

    def kill_master(self) -> None:
        """Kill the master; the supervisor then starts the next one."""

        def kill() -> bool:
            written = json.loads((self._edl.job_dir(NAME) / "master.json").read_text())
            try:
                os.kill(int(written["pid"]), signal.SIGKILL)
            except ProcessLookupError:  # one that lost a server has ended, and the next one starts
                return False
            return True

        eventually(kill, "a master is killed")

    def lose_machine(self) -> None:
        """Kill all processes, until none is left that starts the others again."""
        job_dir = self._edl.job_dir(NAME)
        while found := {supervision.supervisor_pid(job_dir), *self._edl.processes()} - {None}:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def slow_server_down(self, until: Callable[[], bool]) -> None:
        """One of the parameter servers gets little time, until something is true."""
        while not until():
            pid = find_fork(int(self._edl.written_status(NAME)["servers"][0]["pid"]))
            with contextlib.suppress(ProcessLookupError):  # the master takes it for dead
                os.kill(pid, signal.SIGSTOP)
                time.sleep(_STOPPED_S)
                os.kill(pid, signal.SIGCONT)
            time.sleep(_GOING_ON_S)

    def stop(self) -> None:
        """End the job, with all its processes."""
        (self._trouble / "records").unlink(missing_ok=True)
        (self._trouble / "stuck").unlink(missing_ok=True)
        self._edl("stop", NAME)

    def _at_work(self) -> set[int]:
        workers = self._edl.written_status(NAME).get("workers", ())
        return {int(worker["pid"]) for worker in workers if worker["state"] == "working"}
