"""Processes of this machine that cannot be mistaken: a number and a start time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_STATE, _PARENT, _STARTED = 0, 1, 19  # fields 3, 4 and 22 of /proc/PID/stat, after the name
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it was when somebody wrote it down.

    Attributes:
        start_time: clock ticks since boot. A number alone may belong to another process by
            the time it is used.
    """

    pid: int
    start_time: int

    @property
    def is_alive(self) -> bool:
        """Whether it is still there; a zombie is not."""
        stat = _stat(self.pid)
        return (
            stat is not None
            and int(stat[_STARTED]) == self.start_time
            and stat[_STATE] not in (b"Z", b"X")
        )

    def send(self, what: signal.Signals) -> None:
        """Signal it; SIGKILL goes to the whole group that it leads. Nothing if it is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # Only after the pidfd pins the process does its start time say which one it is.
            if not self.is_alive:
                return
            with contextlib.suppress(OSError):
                if what is signal.SIGKILL and os.getpgid(self.pid) == self.pid:
                    os.killpg(self.pid, what)
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, what)
        finally:
            os.close(fd)


class Body(Protocol):
    """A process or a container."""

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""

    def send(self, what: signal.Signals) -> None:
        """Signal it."""


def find(pid: int) -> Process | None:
    """The process that has this number now."""
    stat = _stat(pid)
    return Process(pid, int(stat[_STARTED])) if stat else None


def children(pid: int) -> list[Process]:
    """The processes that this one has started and not yet waited for."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) and int(stat[_PARENT]) == pid:
            found.append(Process(int(entry), int(stat[_STARTED])))
    return found


def end(bodies: Iterable[Body], grace_s: float) -> list[Body]:
    """End bodies, each with the group it leads: ask, and kill those left after ``grace_s``.

    Returns:
        Those that were alive.
    """
    living = [body for body in bodies if body.is_alive]
    for body in living:
        body.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(body.is_alive for body in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for body in living:
        body.send(signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    while any(body.is_alive for body in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return living


def _stat(pid: int) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name may itself hold spaces and parentheses; the last one closes it.
    return stat[stat.rindex(b")") + 2 :].split()
