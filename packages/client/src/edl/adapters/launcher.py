"""Starts the master of a job on this machine, detached from whoever asked for it.

Beside it goes a supervisor, which starts the master again when that dies (``edl.supervisor``).
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from edl import codec
from edl.adapters import container_engine, processes
from edl.adapters.job_store import START_DEADLINE_S, JobStore, MasterRecord, tail
from edl.core.supervision import KILLS
from edl_proto.errors import EdlError
from edl_proto.local import job_directory, process_identity, supervision
from edl_proto.v1 import error_pb2

_POLL_S = 0.02
_SUPERVISED_EVERY_S = 1.0
_END_S = 3.0


def python(environ: Mapping[str, str] = os.environ) -> str:
    """The interpreter that runs masters and workers."""
    return environ.get("EDL_PYTHON") or sys.executable


def master_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that starts a master; ``--job-dir DIR`` is appended to it."""
    if custom := environ.get("EDL_MASTER_COMMAND"):
        return shlex.split(custom)
    return [python(environ), "-m", "edl_master"]


def container_command() -> list[str]:
    """The command that runs a master as a container; ``--job-dir DIR`` is appended to it."""
    return [sys.executable, "-P", "-m", "edl.master_container"]


def supervisor_command() -> list[str]:
    """The command that starts a supervisor; ``--job-dir DIR`` is appended to it."""
    return [sys.executable, "-P", "-m", "edl.supervisor"]


class LocalLauncher:
    """Starts masters as processes of this machine, each in a session of its own.

    A closed terminal, a Ctrl-C or the end of the client does not reach them. A master in a
    container is a process, too: the one that stays with it.

    Args:
        store: where the jobs are.
        command: starts a master when ``--job-dir DIR`` is appended.
    """

    def __init__(self, store: JobStore, command: Sequence[str] | None = None) -> None:
        self._store = store
        self._command = list(command) if command is not None else master_command()

    def start(self, name: str, deadline_s: float = START_DEADLINE_S) -> MasterRecord:
        """Start the master of a job whose directory exists, and wait until it listens.

        One that is killed before it listens is started again by the job's supervisor, and waited
        for in its stead.

        Raises:
            EdlError: what the master says is wrong, or MASTER_LOST if it ended without a
                word or none listens in time; nothing of it runs then.
        """
        path = self._store.path(name).absolute()
        log = self._store.log(name)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            supervision.describe(path, supervisor_command(), self._command)
            with log.open("ab") as output:
                child = subprocess.Popen(
                    [*self._command, "--job-dir", str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise EdlError(
                error_pb2.MASTER_LOST,
                f"the job's master cannot be started: {error.strerror or error}",
                where=shlex.join(self._command),
                remedy="edl doctor tells what is missing.",
            ) from error
        try:
            record = self._await(name, child, deadline_s)
            supervision.ensure(path)
            return record
        except BaseException:
            self._abandon(name, child)
            raise
        finally:
            # Waited for in the background: a Python program that goes on collects no zombie.
            threading.Thread(target=child.wait, name=f"reap-{name}", daemon=True).start()

    def _await(self, name: str, child: subprocess.Popen[bytes], deadline_s: float) -> MasterRecord:
        deadline = time.monotonic() + deadline_s
        supervised_at = -math.inf
        while True:
            ended = child.poll()
            # After the poll: a master that has ended has written all that it will.
            record = self._store.master(name)
            if record is not None:
                return record
            if ended is not None:
                if not self._has_another(name, ended):
                    raise self._early_end(name, ended)
                if time.monotonic() - supervised_at > _SUPERVISED_EVERY_S:
                    supervised_at = time.monotonic()
                    supervision.ensure(self._store.path(name))
            if time.monotonic() > deadline:
                raise EdlError(
                    error_pb2.MASTER_LOST,
                    f"the job's master did not listen within {deadline_s:.0f} s; it was ended",
                    where=str(self._store.log(name)),
                    remedy="The log may tell what it waits for.",
                    detail=self._store.log_tail(name),
                )
            time.sleep(_POLL_S)

    def _has_another(self, name: str, code: int) -> bool:
        """Whether the job has or gets another master than the one that ended so.

        Somebody else started one at the same moment; or ours was killed, and the supervisor
        starts the next one, unless somebody has stopped the job.
        """
        if self._store.status(name).state.is_final:
            return False
        supervised = supervision.commands(self._store.path(name)) is not None
        return code == job_directory.DIRECTORY_TAKEN or (-code in KILLS and supervised)

    def _early_end(self, name: str, code: int) -> EdlError:
        failure = self._store.status(name).failure
        if failure is not None:
            return codec.error_of(failure)
        ended = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        log = self._store.log(name)
        detail = tail(log, 20)
        remedy = "The end of its log is below; edl doctor checks this machine."
        if "No module named edl_master" in detail:
            remedy = "The image has no edl_master: use a --base-image with worker and master."
            if container_engine.read(self._store.path(name)) is None:
                python = self._command[0]
                remedy = f"Install it where {python} finds it: pip install 'edl-client[local]'"
        return EdlError(
            error_pb2.MASTER_LOST,
            f"the job's master ended {ended} before it listened",
            where=str(log),
            remedy=remedy,
            detail=detail,
        )

    def _abandon(self, name: str, child: subprocess.Popen[bytes]) -> None:
        """Leave nothing behind of a master that did not come up."""
        processes.end(self._store.leave_alone(name), _END_S)
        with contextlib.suppress(OSError):
            if child.poll() is None and (master := process_identity.find(child.pid)):
                processes.end([master], _END_S)
        processes.end(self._store.workers(name), _END_S)
        container_engine.sweep(self._store.path(name))
