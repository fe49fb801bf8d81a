"""What faults do to a job: to its processes, its connections, its files and its disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from chaos.job import Job


@dataclass(frozen=True)
class Action:
    """The action of a fault.

    Attributes:
        name: for reports.
        inject: does it, to these processes of a job, for so many seconds; must not block. For
            others, the number chooses how far or which.
        lasts: whether it ends by itself after these seconds.
        ends_with: codes of errors with which the job may rightly fail because of it.
        is_possible: whether this machine and this user can do it.
    """

    name: str
    inject: Callable[[Job, list[int], float], None]
    lasts: bool = False
    ends_with: tuple[str, ...] = ()
    is_possible: Callable[[Job], bool] = lambda job: True


# --- processes ---------------------------------------------------------------------------------


def _kill(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGKILL)


def _term(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGTERM)


def _freeze(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGSTOP)
    threading.Timer(for_s, lambda: _signal(pids, signal.SIGCONT)).start()


def _slow(job: Job, pids: list[int], for_s: float) -> None:
    """Let them run a tenth of the time."""

    def slow() -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            _signal(pids, signal.SIGSTOP)
            time.sleep(0.09)
            _signal(pids, signal.SIGCONT)
            time.sleep(0.01)

    threading.Thread(target=slow, daemon=True).start()


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, what)


# --- connections -------------------------------------------------------------------------------


def _abort_connections(job: Job, pids: list[int], for_s: float) -> None:
    """Reset every TCP connection to a port on which one of these processes listens."""
    listening = _ss("-Htlnp").splitlines()
    for line in listening:
        if any(f"pid={pid}," in line for pid in pids) and (port := re.search(r":(\d+)\s", line)):
            _ss("-K", "sport", "=", f":{port[1]}")
            _ss("-K", "dport", "=", f":{port[1]}")


def _ss(*arguments: str) -> str:
    return subprocess.run(
        ["ss", *arguments], capture_output=True, text=True, timeout=30, check=False
    ).stdout


def _can_abort(job: Job) -> bool:
    return os.geteuid() == 0 and shutil.which("ss") is not None


# --- files -------------------------------------------------------------------------------------


def _damage_snapshot(job: Job, pids: list[int], for_s: float) -> None:
    """Tear the newest snapshot, never both of them, and kill the master, which would not look."""
    snapshots = sorted((job.directory / "snapshots").glob(f"{job.name}-*"))
    if len(snapshots) > 1 and snapshots[-2].name not in job.damaged:
        job.damaged.add(snapshots[-1].name)
        with contextlib.suppress(OSError):
            ledger = snapshots[-1] / "ledger.json"
            os.truncate(ledger, ledger.stat().st_size // 2)
    _signal(pids, signal.SIGKILL)


def _damage_files(job: Job, pids: list[int], for_s: float) -> None:
    """Tear the small files of the job, as an unflushed write before a power cut would."""
    for name in ("status.json", "supervision.json", "master.json", "master-process.json"):
        with contextlib.suppress(OSError):
            os.truncate(job.directory / name, Random(for_s).randrange(2))
    _signal(pids, signal.SIGKILL)


# --- what the user and the machine change ------------------------------------------------------


def _set_clock(job: Job, pids: list[int], by_s: float) -> None:
    if job.clock is not None:
        job.clock.shift(int(by_s))


def _edit_code(job: Job, pids: list[int], for_s: float) -> None:
    job.inputs.edit_code()


def _touch_data(job: Job, pids: list[int], for_s: float) -> None:
    job.inputs.touch_data()


def _rewrite_data(job: Job, pids: list[int], for_s: float) -> None:
    job.inputs.rewrite_data(int(for_s * 10))


# --- the disk of checkpoints -------------------------------------------------------------------


def _fill_disk(job: Job, pids: list[int], for_s: float) -> None:
    filler = job.disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    threading.Timer(for_s, lambda: filler.unlink(missing_ok=True)).start()


def _forbid_writing(job: Job, pids: list[int], for_s: float) -> None:
    _remount(job, "ro")
    threading.Timer(for_s, _remount, (job, "rw")).start()


def _remount(job: Job, how: str) -> None:
    command = ["mount", "-o", f"remount,{how}", str(job.disk)]
    subprocess.run(command, capture_output=True, timeout=30, check=False)


def _has_disk(job: Job) -> bool:
    return bool(job.disk.is_mount())


# --- requests of the user ----------------------------------------------------------------------


def _scale(job: Job, pids: list[int], for_s: float) -> None:
    """Ask for another number of workers, without waiting for the answer."""
    job.request_scale(1 + int(for_s * 10) % 3)


KILL = Action("kill", _kill)
TERM = Action("term", _term)
FREEZE = Action("freeze", _freeze, lasts=True)
LONG_FREEZE = Action("freeze long", _freeze, lasts=True)
SLOW = Action("slow", _slow, lasts=True)
ABORT = Action("abort connections of", _abort_connections, is_possible=_can_abort)
DAMAGE_SNAPSHOT = Action("damage snapshot and kill", _damage_snapshot)
DAMAGE_FILES = Action("damage files and kill", _damage_files)
SET_CLOCK = Action("set clock of", _set_clock, is_possible=lambda job: job.clock is not None)
EDIT_CODE = Action("edit code of", _edit_code)
TOUCH_DATA = Action("touch data of", _touch_data)
REWRITE_DATA = Action("rewrite data of", _rewrite_data)
FILL_DISK = Action("fill disk of", _fill_disk, True, ("DISK_FULL",), _has_disk)
FORBID_WRITING = Action(
    "forbid writing to", _forbid_writing, True, ("OUTPUT_UNWRITABLE", "DISK_FULL"), _has_disk
)
SCALE = Action("scale", _scale)
