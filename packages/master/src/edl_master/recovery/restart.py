"""The ways in which a master ends without the end of its job: a restart, or a suspension.

A parameter server that fails takes a part of every minibatch since the last snapshot with it. Then
the master rolls back to that snapshot: its program restarts in the same process (docs/adr/0010),
with the same process number and children, as if a supervisor had started it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import NoReturn

from edl_master.core.identifiers import Version
from edl_proto.errors import EdlError, ErrorCode

RESTART = 75
"""The result of ``MasterApp.run`` when the master has to roll back; no exit code of a process."""

SUSPENDED = 76
"""The result of ``MasterApp.run`` after a signal; no exit code of a process."""

SUPERSEDED = 77
"""The result of ``MasterApp.run`` when a later master has the job; no exit code of a process."""

MAX_RESTARTS = 5
"""The limit of restarts from one snapshot, as the servers would fail every time."""

_RESTARTS = "EDL_MASTER_RESTARTS"
"""Carries ``RestartCount`` to the next program of the same process."""

_LOCK = "EDL_MASTER_LOCK"
"""Carries the lock of the job's directory to the next program of the same process."""


@dataclass(frozen=True, slots=True)
class RestartCount:
    """The number of restarts of this process's program.

    Attributes:
        total: since the process began.
        consecutive: from one and the same version.
        version: parameter version of the last restart; -1 for the beginning of the job.
    """

    total: int = 0
    consecutive: int = 0
    version: int = -1

    @classmethod
    def take(cls, environ: MutableMapping[str, str] = os.environ) -> RestartCount:
        """Take the count that ``write`` left in the environment; no child process inherits it."""
        numbers = environ.pop(_RESTARTS, "").split()
        return cls(*map(int, numbers)) if len(numbers) == 3 else cls()

    def write(self) -> None:
        """Give the count to the next program of this process."""
        os.environ[_RESTARTS] = f"{self.total} {self.consecutive} {self.version}"

    def next(self, version: Version | None) -> RestartCount:
        """Return the count after one more restart, from this version."""
        now = -1 if version is None else version
        again = self.total > 0 and now == self.version
        return RestartCount(self.total + 1, self.consecutive + 1 if again else 1, now)

    def prepare_rollback(
        self, began_at: Version | None, lost: str, where: str, remedy: str
    ) -> None:
        """Let the next program of this process go back to the snapshot that this one began with.

        Args:
            began_at: version of that snapshot; None: the beginning.
            lost: what was lost, as a clause.
            where: the place of the loss, for a message.
            remedy: what users can look at.

        Raises:
            EdlError: WORKER_CRASH_LOOP; too many restarts from that snapshot.
        """
        restarts = self.next(began_at)
        if restarts.consecutive > MAX_RESTARTS:
            raise EdlError(
                ErrorCode.WORKER_CRASH_LOOP,
                f"{lost}, as {MAX_RESTARTS} times before without any progress",
                where=where,
                remedy=remedy,
            )
        restarts.write()


def is_rollback(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this program restarts one of the same process, until ``RestartCount.take``."""
    return _RESTARTS in environ


def restart_program(lock: int) -> NoReturn:
    """Run this process's program from the start; open files are closed, children stay.

    Args:
        lock: file descriptor that locks the job's directory, for the next program: no other
            process may take this one for a master that has ended.
    """
    os.environ[_LOCK] = str(lock)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def inherited_lock() -> int | None:
    """Return the lock that ``restart_program`` passed on; None if the process is new."""
    lock = os.environ.pop(_LOCK, "")
    return int(lock) if lock else None


def end_by_signal(received: signal.Signals) -> NoReturn:
    """End this process by the signal that it received, and leave the workers running.

    The exit status shows the parent that nothing failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(received, signal.SIG_DFL)
    os.kill(os.getpid(), received)
    os._exit(128 + received)


def end_at_once(code: int) -> NoReturn:
    """End this process as if it had been killed: it writes nothing more, and ends no instance."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
