"""``python -m edl.supervisor --job-dir DIR``: starts the job's master again when it dies.

Light, since it lives as long as the job: no gRPC, no protobuf. It may be killed at any moment;
a process that misses it starts another one (``edl_proto.local.supervision``), which finds the
running master and goes on watching it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.adapters import processes
from edl.core.supervision import Deaths, GiveUp, Restart
from edl_proto.local import job_directory, process_identity, supervision

log = logging.getLogger(__name__)

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

LOOK_S = 0.5
"""How soon it is noticed that the job was deleted, or is not to be watched any more."""

LOCK_S = 0.05
"""How soon the end of a master that is known only by its lock is noticed."""

SILENCE_S = 30.0
"""A master that has written no status for so long is frozen for good: it writes one each second.
Half of what the workers are prepared to wait."""

_END_S = 5.0
_WORKER_GRACE_S = 2.0
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Death:
    """How a master ended, as far as it can be known."""

    lived_s: float
    signal: int | None = None
    exit_code: int | None = None


class Supervisor:
    """Watches over one job; the caller holds its lock.

    Args:
        job_dir: of the job.
        command: starts its master when ``--job-dir DIR`` is appended.
    """

    def __init__(self, job_dir: Path, command: Sequence[str]) -> None:
        self._job_dir = job_dir
        self._command = list(command)
        self._deaths = Deaths()
        self._status_seen: tuple[int, float] = (0, time.monotonic())

    def run(self) -> int:
        """Watch until the job is over, given up or gone; return the exit code."""
        while not self._is_over():
            # A master that is there already is watched; only one that is missing is started.
            death = self._watch_found() if supervision.has_master(self._job_dir) else self._start()
            if death is None:
                continue
            if self._is_over():
                break
            verdict = self._deaths.after(death.lived_s, death.signal, death.exit_code)
            log.info("the master has ended: %s; %s", death, verdict)
            match verdict:
                case Restart(delay_s):
                    time.sleep(delay_s)
                case GiveUp(why):
                    self._give_up(why)
                    return 1
        return 0

    # --- one master's life -----------------------------------------------------------------

    def _start(self) -> Death | None:
        """Start a master and watch it to its end."""
        log.info("the job's master is started again")
        began = time.monotonic()
        self._status_seen = (self._status_time(), began)
        try:
            with (self._job_dir / job_directory.LOGS / "master.log").open("ab") as output:
                child = subprocess.Popen(
                    [*self._command, "--job-dir", str(self._job_dir)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            log.error("the master cannot be started: %s", error)
            return None if not self._is_ours() else Death(0.0, exit_code=127)
        while True:
            try:
                code = child.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if not self._is_ours():
                    return None
                self._look_for_silence(child.pid)
        if code == job_directory.DIRECTORY_TAKEN:
            return None  # somebody else's master was quicker
        lived_s = time.monotonic() - began
        return Death(lived_s, -code, None) if code < 0 else Death(lived_s, None, code)

    def _watch_found(self) -> Death | None:
        """Watch a master that somebody else started; only the time of its end can be known."""
        began = time.monotonic()
        while supervision.has_master(self._job_dir):
            if not self._is_ours():
                return None
            pid = self._master_pid()
            if pid is None:
                time.sleep(LOCK_S)  # it is still starting
            else:
                self._look_for_silence(pid)
                _wait_for_end(pid, LOOK_S)
        return Death(time.monotonic() - began)

    def _master_pid(self) -> int | None:
        """Of the master that listens; or of the process that stands for its container."""
        path = self._job_dir / job_directory.MASTER
        container = self._job_dir / job_directory.CONTAINER
        try:
            if container.exists():
                if path.stat().st_mtime_ns < container.stat().st_mtime_ns:
                    return None  # it is still starting
                path = container
            facts = json.loads(path.read_bytes())
            found = process_identity.Process(int(facts["pid"]), int(facts["start_time"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found.pid if found.is_alive else None

    def _look_for_silence(self, pid: int) -> None:
        """Kill a master that lives but has not written its status for too long."""
        now, written = time.monotonic(), self._status_time()
        if written != self._status_seen[0] or pid != self._master_pid():
            self._status_seen = (written, now)
        elif now - self._status_seen[1] > SILENCE_S and not self._is_over():
            self._status_seen = (written, now)
            log.info("the job's master has been silent for %.0f s and is killed", SILENCE_S)
            if (master := process_identity.find(pid)) is not None:
                # Asked first: what stands for a container ends that, and is not frozen itself.
                processes.end([master], _END_S)

    def _status_time(self) -> int:
        try:
            return (self._job_dir / job_directory.STATUS).stat().st_mtime_ns
        except OSError:
            return 0

    # --- the job ---------------------------------------------------------------------------

    def _is_ours(self) -> bool:
        """Whether the job is there, and still to be watched over."""
        supervision.beat(self._job_dir)
        spec = self._job_dir / job_directory.SPEC
        return spec.exists() and supervision.commands(self._job_dir) is not None

    def _is_over(self) -> bool:
        return not self._is_ours() or self._status().get("state") in FINAL

    def _status(self) -> dict[str, Any]:
        try:
            found = json.loads((self._job_dir / job_directory.STATUS).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _give_up(self, why: str) -> None:
        """Leave the job's last word, and no worker behind."""
        log.error("%s: given up", why)
        tail = _tail(self._job_dir / job_directory.LOGS / "master.log")
        spec = json.loads((self._job_dir / job_directory.SPEC).read_bytes())
        last = {
            "name": self._job_dir.name,
            "type": spec.get("type", "TRAIN"),
            "output": spec.get("output", ""),
            **self._status(),
            "state": "FAILED",
            "error": {
                "code": "MASTER_LOST",
                "what": why,
                "where": str(self._job_dir / job_directory.LOGS / "master.log"),
                "remedy": "The end of its log is below; if memory is short, give the job fewer"
                " workers.",
                "detail": tail,
            },
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        draft = self._job_dir / f".{job_directory.STATUS}.{os.getpid()}.tmp"
        draft.write_text(json.dumps(last))
        draft.replace(self._job_dir / job_directory.STATUS)
        workers = []
        for path in (self._job_dir / job_directory.PODS).glob("*.json"):
            try:
                facts = json.loads(path.read_bytes())
                workers.append(
                    process_identity.Process(int(facts["pid"]), int(facts["start_time"]))
                )
            except (OSError, ValueError, KeyError, TypeError):
                continue
        processes.end(workers, _WORKER_GRACE_S)


def _wait_for_end(pid: int, timeout_s: float) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(fd)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, take the lock, watch; 0 if the job is over, or has another supervisor."""
    parser = argparse.ArgumentParser(prog="edl.supervisor", description=__doc__)
    parser.add_argument("--job-dir", type=Path, required=True, metavar="DIR")
    job_dir = parser.parse_args(arguments).job_dir.absolute()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    found = supervision.commands(job_dir)
    if found is None or (lock := supervision.hold(job_dir)) is None:
        return 0
    with lock:
        log.info("supervisor %d watches %s", os.getpid(), job_dir)
        return Supervisor(job_dir, found[1]).run()


if __name__ == "__main__":
    sys.exit(main())
