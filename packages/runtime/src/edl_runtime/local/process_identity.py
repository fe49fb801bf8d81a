"""Unique identities of this machine's processes, from Linux's /proc and pidfds.

A process number alone may belong to another process by the time it is used. A number together
with the start time of its process names one process for as long as the machine runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _STARTED = 0, 1, 19  # fields 3, 4 and 22 of /proc/PID/stat, after the name
_TIMES = slice(11, 15)  # user and system time, and those of children, in clock ticks


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine, running or not.

    Attributes:
        pid: process number.
        start_time: clock ticks since boot.
    """

    pid: int
    start_time: int

    @property
    def is_alive(self) -> bool:
        """True if the process still runs; a zombie does not."""
        stat = _stat(self.pid)
        return (
            stat is not None and _read_start_time(stat) == self.start_time and not _is_zombie(stat)
        )

    def open(self) -> int | None:
        """Open a pidfd, which the caller closes; None if the process is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        # Only after the pidfd pins the process does the start time say which process it is.
        if not self.is_alive:
            os.close(fd)
            return None
        return fd

    def send(self, what: signal.Signals) -> None:
        """Signal the process; SIGKILL goes to the whole group that the process leads.

        Nothing happens if the process is gone.
        """
        if (fd := self.open()) is None:
            return
        try:
            with contextlib.suppress(OSError):
                if what is signal.SIGKILL and os.getpgid(self.pid) == self.pid:
                    os.killpg(self.pid, what)
            with contextlib.suppress(OSError):
                send(fd, what)
        finally:
            os.close(fd)


def find(pid: int) -> Process | None:
    """Find the process that has this number now; a zombie counts."""
    stat = _stat(pid)
    return Process(pid, _read_start_time(stat)) if stat else None


def children(pid: int) -> list[Process]:
    """Return the processes that this process has started and not yet waited for."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) and int(stat[_PARENT]) == pid:
            found.append(Process(int(entry), _read_start_time(stat)))
    return found


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None without the process.

    A zombie still has its number, and counts.
    """
    stat = _stat(pid)
    return _read_start_time(stat) if stat else None


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its reaped children; 0 if it is gone."""
    stat = _stat(pid)
    return sum(map(int, stat[_TIMES])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def is_running(pid: int) -> bool:
    """Tell whether any process has this number and is no zombie."""
    stat = _stat(pid)
    return stat is not None and not _is_zombie(stat)


def instance_name(pid: int, started: int) -> str:
    """Return the name by which a worker process registers: host:pid:start time."""
    return f"{socket.gethostname()}:{pid}:{started}"


def send(fd: int, what: signal.Signals) -> None:
    """Signal the process behind a pidfd; nothing happens if the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, what)


def kill_group(leader: int) -> None:
    """Kill what is left of a process group whose leader is not reaped yet, or gone.

    While any process of the group lives, the kernel gives the number to no other process; a
    living process by that number means that nothing of the group is left.
    """
    if not is_running(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _read_start_time(stat: list[bytes]) -> int:
    return int(stat[_STARTED])


def _is_zombie(stat: list[bytes]) -> bool:
    return stat[_STATE] in (b"Z", b"X")


def _stat(pid: int) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name may itself hold spaces and parentheses; the last parenthesis closes it.
    return stat[stat.rindex(b")") + 2 :].split()
