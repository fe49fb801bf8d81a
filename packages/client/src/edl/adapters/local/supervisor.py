"""``python -m edl.adapters.local.supervisor --job-dir DIR``: the parent of each master of one job.

Light, since it lives as long as the job: no gRPC, no protobuf. It may be killed at any moment:
the next supervisor (``edl_runtime.local.supervision``) finds the master that runs and observes it
to its end. What it decides, and when, is in ``edl.core.supervision``; the protocol is in
docs/adr/0016.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edl.adapters.local import instances
from edl.adapters.local.job_log_files import log_file, master_log_tail
from edl.adapters.local.job_processes import recorded_workers
from edl.core.supervision import Decision, GiveUp, MasterExit, Observation, Supervision
from edl_runtime.files import open_appending
from edl_runtime.local import job_directory, process_identity, supervision
from edl_runtime.monitoring import logs
from edl_runtime.timestamps import rfc3339

log = logging.getLogger(__name__)

OBSERVE_EVERY_S = 0.5
"""How soon the supervisor sees that the job was deleted, or that its master is frozen. The end of
its own child it sees at once."""

OBSERVE_ORPHAN_EVERY_S = 0.1
"""How soon it sees the end of a master that an earlier supervisor started."""

GAVE_UP = 1
"""Exit code of a supervisor that gave its master up."""

_REMOVE_S = 120.0
_LOG_LINES = 40


class Supervisor:
    """Supervises one job; the caller holds the job's supervisor lock.

    Args:
        job_dir: of the job.
        command: starts its master when ``--job-dir DIR`` is appended.
    """

    def __init__(self, job_dir: Path, command: Sequence[str]) -> None:
        self._job_dir = job_dir
        self._command = list(command)
        self._state = Supervision()
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._pending: MasterExit | None = None
        self._report = supervision.read_report(job_dir)

    def run(self) -> int:
        """Supervise until the job is over, given up or gone; return the exit code."""
        gave_up = False
        while True:
            self._state, decisions = self._state.observe(self._observe(), time.monotonic())
            for decision in decisions:
                match decision:
                    case Decision.START_MASTER:
                        self._start_master()
                    case Decision.END_MASTER:
                        self._end_master()
                    case Decision.END_WORKERS:
                        self._end_workers()
                    case GiveUp(why):
                        gave_up = True
                        self._give_up(why)
                    case Decision.LEAVE:
                        return GAVE_UP if gave_up else 0
            self._wait()

    # --- observing -------------------------------------------------------------------------

    def _observe(self) -> Observation:
        supervision.record_heartbeat(self._job_dir)
        end, lost_race = self._exit_of_child()
        # The exit first: a master that has ended has written everything that it will write.
        if "end" not in self._report and (state := supervision.final_state(self._job_dir)):
            self._write_report(end=state)
        return Observation(
            is_wanted=supervision.is_wanted(self._job_dir),
            is_over=supervision.is_over(self._job_dir),
            has_master=supervision.has_master(self._job_dir),
            heartbeat=supervision.master_heartbeat(self._job_dir),
            exit=end,
            lost_race=lost_race,
        )

    def _exit_of_child(self) -> tuple[MasterExit | None, bool]:
        """Return how the child ended since the last call, and whether another master was there."""
        if self._pending is not None:
            end, self._pending = self._pending, None
        elif self._child is not None and (code := self._child.poll()) is not None:
            self._child = None
            if code == job_directory.DIRECTORY_TAKEN:
                return None, True
            end = MasterExit(
                lived_s=time.monotonic() - self._started_at,
                signal=-code if code < 0 else None,
                exit_code=code if code >= 0 else None,
                listened=(self._job_dir / job_directory.MASTER).exists(),
            )
        else:
            return None, False
        log.info("the master has ended: %s", end)
        self._write_report(
            last_exit={
                "exit_code": end.exit_code,
                "signal": end.signal,
                "lived_s": round(end.lived_s, 3),
                "listened": end.listened,
                "start_error": end.start_error,
                "at": _now(),
            }
        )
        return end, False

    def _wait(self) -> None:
        """Wait for the end of the child, or until the next observation is due."""
        if self._pending is not None:
            return
        if self._child is None:
            time.sleep(OBSERVE_ORPHAN_EVERY_S)
            return
        try:
            self._child.wait(OBSERVE_EVERY_S)
        except subprocess.TimeoutExpired:
            return

    # --- acting ----------------------------------------------------------------------------

    def _start_master(self) -> None:
        self._started_at = time.monotonic()
        self._write_report(starts=int(self._report.get("starts", 0)) + 1)
        try:
            with open_appending(log_file(self._job_dir)) as output:
                self._child = subprocess.Popen(
                    [*self._command, "--job-dir", str(self._job_dir)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._pending = MasterExit(0.0, start_error=str(error))
            return
        log.info("master %d is started", self._child.pid)

    def _end_master(self) -> None:
        """End a frozen master; SIGTERM first, for the process that stands for a container."""
        log.warning("the job's master has no heartbeat and is killed")
        if self._child is not None:
            master = process_identity.find(self._child.pid)
        else:
            found = supervision.master_process(self._job_dir)
            master = process_identity.Process(*found) if found else None
        if master is not None:
            instances.end([master], instances.MASTER_GRACE_S)

    def _end_workers(self) -> None:
        if (self._job_dir / job_directory.CONTAINER).exists():
            self._remove_containers()
            return
        instances.end(recorded_workers(self._job_dir), instances.WORKER_GRACE_S)

    def _remove_containers(self) -> None:
        """Remove what is left of a job of containers; records of processes are its master's word.

        Another process does it, because this one is light, and knows no engine.
        """
        with (
            contextlib.suppress(OSError, subprocess.TimeoutExpired),
            open_appending(self._job_dir / job_directory.LOGS / "supervisor.log") as output,
        ):
            subprocess.run(
                [*self._command, "--job-dir", str(self._job_dir), "--remove"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_REMOVE_S,
                check=False,
            )

    def _give_up(self, why: str) -> None:
        """Report the error with which the job ends."""
        log.error("%s: given up", why)
        with contextlib.suppress(OSError):
            (self._job_dir / job_directory.RESERVE).unlink(missing_ok=True)
        last = self._report.get("last_exit", {})
        where = str(log_file(self._job_dir))
        remedy = "The end of its log is below; if memory is short, give the job fewer workers."
        if last.get("start_error"):
            where, remedy = shlex.join(self._command), "edl doctor lists what is missing."
        elif not last.get("listened"):
            remedy = "The end of its log is below; edl doctor checks this machine."
        error = {"code": "MASTER_LOST", "what": why, "where": where, "remedy": remedy}
        log_lines = 0 if last.get("start_error") else _LOG_LINES
        error["detail"] = master_log_tail(self._job_dir, log_lines)
        self._write_report(error=error, finished_at=_now())

    def _write_report(self, **changes: Any) -> None:
        self._report = {**self._report, **changes}
        try:
            supervision.write_report(self._job_dir, self._report)
        except OSError as error:
            log.error("the report cannot be written: %s", error)


def _now() -> str:
    return rfc3339(time.time(), "seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, take the lock, supervise; 0 if the job is over, or has another supervisor."""
    parser = argparse.ArgumentParser(prog="edl.adapters.local.supervisor", description=__doc__)
    parser.add_argument("--job-dir", type=Path, required=True, metavar="DIR")
    job_dir = parser.parse_args(arguments).job_dir.absolute()
    logs.set_up()
    logs.identify("supervisor", job=job_dir.name)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    found = supervision.commands(job_dir)
    if found is None or (lock := supervision.hold(job_dir)) is None:
        return 0
    with lock:
        log.info("supervisor %d of %s", os.getpid(), job_dir)
        return Supervisor(job_dir, found[1]).run()


if __name__ == "__main__":
    sys.exit(main())
