"""The lock of a job's directory, which one master holds at a time."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from edl_master.adapters.storage_errors import storage_error
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import replace_file
from edl_runtime.local import job_directory, process_identity, supervision

_HEARTBEAT_EVERY_S = 1.0
_CHECK_EVERY_S = 0.5
_SUPERVISOR_MISSING_S = 1.5
"""Longer than worker 0 takes to start one."""


class JobLock:
    """The lock of one job's directory, as long as this process lives.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def hold(self, inherited: int | None = None) -> None:
        """Keep every other master out until this process ends.

        Args:
            inherited: what ``make_inheritable`` returned in an earlier program of this process.

        Raises:
            EdlError: JOB_EXISTS if another master has this directory; OUTPUT_UNWRITABLE if it
                cannot be opened.
        """
        if inherited is not None and os.path.samestat(os.fstat(inherited), self.path.stat()):
            os.set_inheritable(inherited, False)
            self._held = inherited
            return
        try:
            held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error(error, self.path) from error
        try:
            supervision.take_lock(held)
        except BlockingIOError:
            os.close(held)
            raise EdlError(
                ErrorCode.JOB_EXISTS,
                "another master is running this job",
                where=str(self.path),
                remedy="Use another name, or wait until that job has ended.",
            ) from None
        self._held = held
        self._identify()

    def _identify(self) -> None:
        """Write down which process holds the directory: it may freeze before it listens.

        A full disk is no reason to end here; the lock counts.
        """
        pid = os.getpid()
        facts = {"pid": pid, "start_time": process_identity.start_time(pid) or 0}
        with contextlib.suppress(OSError):
            replace_file(
                self.path / job_directory.MASTER_PROCESS, json.dumps(facts, indent=2).encode()
            )

    def watch_supervisor(self) -> None:
        """Start the job's supervisor whenever it has none, as long as this process lives.

        Workers do the same, and sooner; but a job may have none at the moment (docs/adr/0016). A
        master in a container cannot start processes of the machine.
        """
        if (self.path / job_directory.CONTAINER).exists():
            return
        supervision.SupervisorWatch(self.path, _SUPERVISOR_MISSING_S).start(_CHECK_EVERY_S)

    @contextlib.contextmanager
    def heartbeats(self) -> Iterator[None]:
        """Record a heartbeat each second, until a status is written."""
        ended = threading.Event()

        def record() -> None:
            while not ended.wait(_HEARTBEAT_EVERY_S):
                with contextlib.suppress(OSError):
                    os.utime(self.path / job_directory.MASTER_PROCESS)

        threading.Thread(target=record, name="start-heartbeat", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def make_inheritable(self) -> int:
        """Let the next program of this process keep the lock; return its file descriptor."""
        assert self._held is not None, "only what is held can be inherited"
        os.set_inheritable(self._held, True)
        return self._held

    def release(self) -> None:
        """Let another master hold the directory."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
