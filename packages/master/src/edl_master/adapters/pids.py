"""Process ids that cannot be mistaken: Linux's /proc and pidfds.

A number alone may belong to another process by the time it is used. A number together with
the time its process started names one process for as long as the machine runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from edl_master.core.identifiers import InstanceId

_STATE, _STARTED = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted after the name


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none by that number.

    A zombie still has its number, and counts.
    """
    stat = _stat(pid)
    return int(stat[_STARTED]) if stat else None


def is_running(pid: int) -> bool:
    """Whether there is a process by that number that is no zombie."""
    stat = _stat(pid)
    return stat is not None and stat[_STATE] not in (b"Z", b"X")


def _stat(pid: int) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name may itself hold spaces and parentheses; the last one closes it.
    return stat[stat.rindex(b")") + 2 :].split()


def body(pid: int, started: int) -> InstanceId:
    """The identity by which a worker process registers: host:pid:start time."""
    return InstanceId(f"{socket.gethostname()}:{pid}:{started}")


def open_process(pid: int, started: int) -> int | None:
    """A pidfd for the process that is meant, or None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    # Only after the pidfd pins the process does its start time say which one it is.
    if start_time(pid) != started or not is_running(pid):
        os.close(fd)
        return None
    return fd


def send(fd: int, what: signal.Signals) -> None:
    """Signal the process behind a pidfd; nothing happens if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, what)


def kill_group(leader: int) -> None:
    """End what is left of a process group whose leader is dead but not yet reaped, or gone.

    While any member lives, the kernel gives the number to nobody else; a living process by
    that number means that nothing of the group is left.
    """
    if not is_running(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
