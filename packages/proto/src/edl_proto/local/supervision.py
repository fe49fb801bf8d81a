"""Who watches over a job of this machine: found by a lock, started by whoever misses it.

A job has at most one supervisor, the process that starts its master again when that dies. The
supervisor holds a lock in the job's directory for as long as it lives; beside the lock lies the
command that starts one. So the client, the master and the workers can each put a new supervisor
in place of a dead one, and two that were started at once are one a moment later.

Jobs that something else watches over (Kubernetes) have no such file, and nothing happens here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from edl_proto.local import job_directory

FROZEN_S = 30.0
"""A supervisor that has not beaten for so long is frozen for good; it beats twice a second."""


def describe(job_dir: Path, supervisor: Sequence[str], master: Sequence[str]) -> None:
    """Write down how this job's supervisor and master are started, without the job's directory.

    Raises:
        OSError: it cannot be written.
    """
    facts = {"supervisor": list(supervisor), "master": list(master)}
    draft = job_dir / f".{job_directory.SUPERVISOR}.{os.getpid()}.tmp"
    draft.write_text(json.dumps(facts, indent=2))
    draft.replace(job_dir / job_directory.SUPERVISOR)


def commands(job_dir: Path) -> tuple[list[str], list[str]] | None:
    """What ``describe`` wrote: the supervisor's command and the master's; None without it."""
    try:
        facts = json.loads((job_dir / job_directory.SUPERVISOR).read_bytes())
        return [str(word) for word in facts["supervisor"]], [str(w) for w in facts["master"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def release(job_dir: Path) -> None:
    """Nobody is to start this job's master again."""
    (job_dir / job_directory.SUPERVISOR).unlink(missing_ok=True)


def hold(job_dir: Path) -> IO[str] | None:
    """Become the supervisor of a job, as long as the returned file is open and its process lives.

    Returns:
        None if the job has a supervisor already, or is gone.
    """
    try:
        file = (job_dir / job_directory.SUPERVISOR_LOCK).open("a")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def supervisor_pid(job_dir: Path) -> int | None:
    """The process number of the supervisor that holds the lock; None if nobody does."""
    path = job_dir / job_directory.SUPERVISOR_LOCK
    if not _is_locked(path):
        return None
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # it is writing its number at this moment


def beat(job_dir: Path) -> None:
    """The supervisor lives; called at least every few seconds."""
    with contextlib.suppress(OSError):
        os.utime(job_dir / job_directory.SUPERVISOR_LOCK)


def has_master(job_dir: Path) -> bool:
    """Whether a master holds the job's directory: at work, starting, or frozen."""
    return _is_locked(job_dir)


def ensure(job_dir: Path) -> bool:
    """Start the supervisor of a job that should have one and has none; say whether one was.

    One that has been frozen for long is killed first: it holds the lock, and does nothing.
    """
    if (found := commands(job_dir)) is None:
        return False
    if (pid := supervisor_pid(job_dir)) is not None:
        lock = job_dir / job_directory.SUPERVISOR_LOCK
        with contextlib.suppress(OSError):
            if time.time() - lock.stat().st_mtime > FROZEN_S and supervisor_pid(job_dir) == pid:
                os.kill(pid, signal.SIGKILL)
        return False
    if _is_locked(job_dir / job_directory.SUPERVISOR_LOCK):
        return False
    log = job_dir / job_directory.LOGS / "supervisor.log"
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                [*found[0], "--job-dir", str(job_dir)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError:
        return False  # the directory is gone, or the machine is full: whoever asks next tries
    # Waited for, so that a supervisor that ends before us leaves no zombie.
    threading.Thread(target=child.wait, name="reap-supervisor", daemon=True).start()
    return True


def _is_locked(path: Path) -> bool:
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError:
        return False
    try:
        # Shared, so that two who look do not see each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    return False
