"""The supervisor of a job on this machine: its files, its lock, and how one is started.

A job has at most one supervisor, the process that is the parent of its master (docs/adr/0016).
The supervisor holds a lock in the job's directory for as long as it lives; next to the lock lies
the command that starts one. If several start at once, only the one that gets the lock stays.

Jobs that something else restarts (Kubernetes) have no such file: then no function acts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any

from edl_runtime.files import open_appending, read_regular, replace_file
from edl_runtime.json_texts import parse_object
from edl_runtime.local import job_directory, ownership, process_environment

log = logging.getLogger(__name__)

FROZEN_S = 30.0
"""The silence after which a supervisor is frozen; it records a heartbeat twice a second."""

_CONFIRM_S = 1.5
"""A silence that only the wall clock shows has to be confirmed: the clock may have been set."""

_STARTING_S = 20.0
"""How long a supervisor may take from its start to its lock, on a machine with much to do."""

_HOLD_TRIES = 10
_HOLD_TRY_S = 0.02
"""A process that checks whether a lock is held holds it for some microseconds itself."""

FINAL_STATES = frozenset(("SUCCEEDED", "FAILED", "CANCELLED"))


# --- files -------------------------------------------------------------------------------------


def describe(job_dir: Path, supervisor: Sequence[str], master: Sequence[str]) -> None:
    """Write down how this job's supervisor and master are started, without the job's directory.

    Raises:
        OSError: it cannot be written.
    """
    facts = {"supervisor": list(supervisor), "master": list(master)}
    replace_file(job_dir / job_directory.SUPERVISOR, json.dumps(facts, indent=2).encode())


def commands(job_dir: Path) -> tuple[list[str], list[str]] | None:
    """Return the commands of supervisor and master that ``describe`` wrote, or None.

    Commands in a directory that others can change are ignored: they would run as this user.
    """
    if not ownership.is_own(job_dir):
        return None
    try:
        facts = parse_object(read_regular(job_dir / job_directory.SUPERVISOR))
        return [str(word) for word in facts["supervisor"]], [str(w) for w in facts["master"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def release(job_dir: Path) -> None:
    """Prevent every further start of this job's master; one that is starting ends by itself.

    An empty file marks this, as jobs that something else restarts have no file. The file is
    emptied in place, since a container sees only that, and a full disk does not prevent it.
    """
    with contextlib.suppress(FileNotFoundError):
        os.truncate(job_dir / job_directory.SUPERVISOR, 0)


def is_released(job_dir: Path) -> bool:
    """Tell whether ``release`` was called. A master asks once other processes can see it."""
    with contextlib.suppress(OSError):
        return (job_dir / job_directory.SUPERVISOR).stat().st_size == 0
    return False


def write_report(job_dir: Path, report: Mapping[str, Any]) -> None:
    """Write what the supervisor knows of the job's masters; only the supervisor calls this.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(job_dir / job_directory.SUPERVISION, json.dumps(report, indent=2).encode())


def read_report(job_dir: Path) -> dict[str, Any]:
    """Read the supervisor's report; empty without one.

    Keys: ``starts``, a number; ``last_exit``, an object with ``exit_code``, ``signal``,
    ``lived_s``, ``listened``, ``start_error`` and ``at``; and, if the supervisor gave the
    master up, ``error``, the fields of an ``edl.v1.Error``, with ``finished_at``. Once the master
    has ended the job, ``end`` is the job's state: a damaged ``status.json`` does not reopen it.
    """
    return job_directory.read_object(job_dir / job_directory.SUPERVISION)


def is_wanted(job_dir: Path) -> bool:
    """Tell whether the job exists and a supervisor has to keep its master running."""
    return (job_dir / job_directory.SPEC).exists() and commands(job_dir) is not None


def is_over(job_dir: Path) -> bool:
    """Tell whether the job has a final state: by its master, or because the supervisor gave up."""
    if final_state(job_dir):
        return True
    report = read_report(job_dir)
    return "error" in report or str(report.get("end")) in FINAL_STATES


def final_state(job_dir: Path) -> str:
    """Return the state with which the master ended the job; empty if it continues."""
    state = str(job_directory.read_object(job_dir / job_directory.STATUS).get("state"))
    return state if state in FINAL_STATES else ""


# --- locks and heartbeats ----------------------------------------------------------------------


def take_lock(fd: int) -> None:
    """Lock an open file or directory exclusively, without waiting for another owner.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    for attempt in range(_HOLD_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt == _HOLD_TRIES - 1:
                raise
            time.sleep(_HOLD_TRY_S)


def hold(job_dir: Path) -> IO[bytes] | None:
    """Take the supervisor's lock of a job: held until the returned file is closed.

    Returns:
        None if the job has a supervisor already, or is gone.
    """
    try:
        file = open_appending(job_dir / job_directory.SUPERVISOR_LOCK)
    except OSError:
        return None
    try:
        take_lock(file.fileno())
    except OSError:
        file.close()
        return None
    for draft in job_dir.glob(f".{job_directory.SUPERVISION}.*.tmp"):
        draft.unlink(missing_ok=True)  # left by a supervisor that was killed
    file.truncate(0)
    file.write(b"%d\n" % os.getpid())
    file.flush()
    return file


def supervisor_pid(job_dir: Path) -> int | None:
    """Return the process number of the supervisor that holds the lock, or None."""
    path = job_dir / job_directory.SUPERVISOR_LOCK
    if not _is_locked(path):
        return None
    try:
        return int(read_regular(path))
    except (OSError, ValueError):
        return None  # it is writing its number at this moment


def record_heartbeat(job_dir: Path) -> None:
    """Record the supervisor's heartbeat; called at least every few seconds."""
    with contextlib.suppress(OSError):
        os.utime(job_dir / job_directory.SUPERVISOR_LOCK)


def is_directory_held(job_dir: Path) -> bool:
    """Tell whether a master holds the job's directory: at work, starting, or frozen."""
    return _is_locked(job_dir)


def has_master(job_dir: Path) -> bool:
    """Tell whether the job has a process that a supervisor can observe as its master.

    If the job runs in a container, that is the process which waits for the container's end: if it
    was killed, another one has to be started, which finds the container.
    """
    if (job_dir / job_directory.CONTAINER).exists():
        return _is_locked(job_dir / job_directory.CONTAINER_LOCK)
    return is_directory_held(job_dir)


def master_heartbeat(job_dir: Path) -> int:
    """Return a number that changes while the job's master makes progress.

    While a master starts it touches ``master-process.json``; later it writes its status.
    """
    return sum(
        _time_of(job_dir / name) for name in (job_directory.MASTER_PROCESS, job_directory.STATUS)
    )


def master_process(job_dir: Path) -> tuple[int, int] | None:
    """Process number and start time of the process that stands for the job's master.

    That is the master itself, or the process that waits for the end of the job's container; None
    if neither was ever written down.
    """
    for name in (job_directory.CONTAINER, job_directory.MASTER_PROCESS, job_directory.MASTER):
        facts = job_directory.read_object(job_dir / name)
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            return int(facts["pid"]), int(facts["start_time"])
    return None


# --- starting a supervisor ---------------------------------------------------------------------


class SupervisorAction(Enum):
    """The action of a process that observes a job's supervisor."""

    NOTHING = auto()
    START = auto()
    KILL = auto()


def supervisor_action(
    *, is_wanted: bool, is_over: bool, is_held: bool, silent_s: float
) -> SupervisorAction:
    """Decide what to do about a job's supervisor: nothing, start one, or kill a frozen one.

    Args:
        is_wanted, is_over: as the functions of these names say.
        is_held: a process holds the supervisor's lock.
        silent_s: seconds since the last heartbeat of that process.
    """
    if not is_wanted or is_over:
        return SupervisorAction.NOTHING
    if not is_held:
        return SupervisorAction.START
    return SupervisorAction.KILL if silent_s > FROZEN_S else SupervisorAction.NOTHING


class SupervisorWatch:
    """Observes a job's supervisor; all durations are of the monotonic clock.

    Args:
        job_dir: of the job.
        delay_s: how long a supervisor has to be missing before this process starts one. Different
            delays keep a thousand processes from starting a supervisor each.
    """

    def __init__(self, job_dir: Path, delay_s: float = 0.0) -> None:
        self._job_dir = job_dir
        self._delay_s = delay_s
        self._heartbeat: tuple[int, float] | None = None
        self._missing_since: float | None = None

    @property
    def is_missing(self) -> bool:
        """True if the last check found no supervisor."""
        return self._missing_since is not None

    def check(self, now: float | None = None) -> bool:
        """Start the supervisor of a job that needs one and has none.

        Args:
            now: seconds of a monotonic clock; None: the present.

        Returns:
            Whether one was started.
        """
        now = time.monotonic() if now is None else now
        if not _is_locked(self._job_dir / job_directory.SUPERVISOR_LOCK):
            self._heartbeat = None
            if self._missing_since is None:
                self._missing_since = now
            if now - self._missing_since < self._delay_s:
                return False
            return _apply(self._job_dir, 0.0)
        self._missing_since = None
        # A thousand workers check once a second: no file is read in the usual case.
        heartbeat = _time_of(self._job_dir / job_directory.SUPERVISOR_LOCK)
        if self._heartbeat is None or self._heartbeat[0] != heartbeat:
            self._heartbeat = (heartbeat, now)
            return False
        return _apply(self._job_dir, now - self._heartbeat[1])

    def start(self, every_s: float) -> None:
        """Check in a thread, as long as this process lives, also after a check that failed."""

        def check() -> None:
            while True:
                time.sleep(every_s)
                try:
                    if self.check():
                        log.warning("the job has no supervisor: starting one")
                except Exception:  # such as an error of the disk: the next check may succeed
                    log.exception("checking the job's supervisor failed")

        threading.Thread(target=check, name="supervisor-watch", daemon=True).start()


def ensure(job_dir: Path) -> bool:
    """Check once: start the supervisor of a job that needs one; return whether one was started.

    A frozen supervisor is killed; the next check replaces it. That check takes
    ``_CONFIRM_S`` longer than others.
    """
    lock = job_dir / job_directory.SUPERVISOR_LOCK
    heartbeat = _time_of(lock)
    silent_s = abs(time.time() - heartbeat / 1e9) if heartbeat else 0.0  # the clock may be set back
    if silent_s > FROZEN_S and _is_locked(lock):
        time.sleep(_CONFIRM_S)
        if _time_of(lock) != heartbeat:
            silent_s = 0.0
    return _apply(job_dir, silent_s)


def _apply(job_dir: Path, silent_s: float) -> bool:
    is_held = _is_locked(job_dir / job_directory.SUPERVISOR_LOCK)
    chosen = supervisor_action(
        is_wanted=is_wanted(job_dir),
        is_over=not is_held and is_over(job_dir),
        is_held=is_held,
        silent_s=silent_s,
    )
    if chosen is SupervisorAction.START:
        return _start(job_dir)
    if chosen is SupervisorAction.KILL and (pid := supervisor_pid(job_dir)) is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return False


_started: dict[Path, tuple[subprocess.Popen[bytes], float]] = {}
"""The last supervisor of each job that this process started, and when."""


def _start(job_dir: Path) -> bool:
    earlier, at = _started.get(job_dir, (None, 0.0))
    if earlier is not None and earlier.poll() is None and time.monotonic() - at < _STARTING_S:
        return False  # it has not taken the lock yet
    if (found := commands(job_dir)) is None:
        return False
    log = job_dir / job_directory.LOGS / "supervisor.log"
    try:
        with open_appending(log) as output:
            child = subprocess.Popen(
                [*found[0], "--job-dir", str(job_dir)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=process_environment.restore(os.environ),
                start_new_session=True,
            )
    except OSError:
        return False  # the directory is gone, or the machine is full: the next check tries again
    _started[job_dir] = (child, time.monotonic())
    # Waited for, so that a supervisor that ends before this process leaves no zombie.
    threading.Thread(target=child.wait, name="reap-supervisor", daemon=True).start()
    return True


def _time_of(path: Path) -> int:
    """Return when a file was last changed, in nanoseconds since the epoch; 0 without the file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_locked(path: Path) -> bool:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError:
        return False
    try:
        # Shared, so that two processes that check do not block each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    return False
