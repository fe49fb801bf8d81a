"""Starts a job on this machine: its supervisor, which starts the job's masters (docs/adr/0016)."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edl import codec
from edl.adapters.local import instances
from edl.adapters.local.job_log_files import log_file, master_log_tail
from edl.adapters.local.job_processes import end_supervision
from edl.adapters.local.job_store import START_DEADLINE_S, JobStore, MasterRecord
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory, supervision

_POLL_S = 0.02
_ENSURE_EVERY_S = 1.0
_PROBE_S = 60.0
_NOT_FOUND = 69  # EX_UNAVAILABLE: no interpreter ends with it by itself


def python(environ: Mapping[str, str] = os.environ) -> str:
    """Return the interpreter that runs masters and workers."""
    return environ.get("EDL_PYTHON") or sys.executable


def master_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command that starts a master; ``--job-dir DIR`` is appended to it.

    Raises:
        EdlError: USAGE, ``$EDL_MASTER_COMMAND`` cannot be split into words.
    """
    custom = custom_command("EDL_MASTER_COMMAND", environ)
    return custom or [python(environ), "-P", "-m", "edl_master"]


def custom_command(variable: str, environ: Mapping[str, str]) -> list[str]:
    """Return the words of a command in a variable; none if it is not set.

    Raises:
        EdlError: USAGE, it cannot be split into words.
    """
    custom = environ.get(variable, "")
    try:
        return shlex.split(custom)
    except ValueError as error:
        raise EdlError(
            ErrorCode.USAGE,
            f"the command {custom} cannot be read: {str(error).lower()}",
            where=f"${variable}",
            remedy="Write it as for a shell, or unset the variable.",
        ) from None


def supervisor_command() -> list[str]:
    """Return the command that starts a supervisor; ``--job-dir DIR`` is appended to it."""
    return [sys.executable, "-P", "-m", "edl.adapters.local.supervisor"]


def lacks_module(command: Sequence[str]) -> bool:
    """Return whether the interpreter of ``python … -m MODULE …`` does not find the module.

    False if the command has another form, or cannot be started.
    """
    if "-m" not in command[:-1]:
        return False
    at = command.index("-m")
    probe = (
        "import importlib.util, sys\n"
        f"sys.exit({_NOT_FOUND} if importlib.util.find_spec({command[at + 1]!r}) is None else 0)"
    )
    try:
        asked = subprocess.run(
            [*command[:at], "-c", probe],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == _NOT_FOUND


class LocalLauncher:
    """A launcher of supervisors as processes of this machine, each in a session of its own.

    A closed terminal, a Ctrl-C or the end of the client does not reach them. To a supervisor a
    master in a container is a process, too: the one that waits for the container's end.

    Args:
        store: where the jobs are.
        command: starts a master when ``--job-dir DIR`` is appended; as the job was created with.
    """

    def __init__(self, store: JobStore, command: Sequence[str] | None = None) -> None:
        self._store = store
        self._command = list(command) if command is not None else master_command()

    def start(
        self, name: str, deadline_s: float = START_DEADLINE_S, *, former: MasterRecord | None = None
    ) -> MasterRecord:
        """Start the supervisor of a job whose directory exists, and wait until a master listens.

        A master that is killed before it listens is started again by the supervisor.

        Args:
            former: the last master of a job that is resumed.

        Raises:
            EdlError: what the master says is wrong; MASTER_LOST if it ended without a word or
                none listens in time; STOPPED if another command stopped or deleted the job.
                Nothing of the job runs then.
        """
        try:
            return self._await(name, deadline_s, former)
        except BaseException:
            self._abandon(name)
            raise

    def _await(self, name: str, deadline_s: float, former: MasterRecord | None) -> MasterRecord:
        path = self._store.path(name).absolute()
        deadline = time.monotonic() + deadline_s
        ensured_at = -math.inf
        while True:
            if time.monotonic() - ensured_at > _ENSURE_EVERY_S:
                ensured_at = time.monotonic()
                supervision.ensure(path)
            over = supervision.is_over(path)
            # Afterwards: a job may be over as soon as its master listens.
            record = self._store.master(name)
            if record is not None and not (former and record.is_same_master(former)):
                return record
            if over:
                raise self._start_error(name)
            if not supervision.is_wanted(path):
                raise self._withdrawn(name)
            if time.monotonic() > deadline:
                raise EdlError(
                    ErrorCode.MASTER_LOST,
                    f"the job's master did not listen within {deadline_s:.0f} s and was ended",
                    where=str(log_file(self._store.path(name))),
                    remedy="The log may show what the master waited for.",
                    detail=master_log_tail(self._store.path(name)),
                )
            time.sleep(_POLL_S)

    def _withdrawn(self, name: str) -> EdlError:
        """No supervisor will start a master: ``edl stop --now`` or ``edl delete`` forbade it."""
        kept = self._store.has(name)
        return EdlError(
            ErrorCode.STOPPED,
            f"job {name} was {'stopped' if kept else 'deleted'} before its master listened",
            where=str(self._store.path(name)),
            remedy=f"edl resume {name} starts it again." if kept else "Submit the job again.",
        )

    def _start_error(self, name: str) -> EdlError:
        """Return why a job is over before any of its masters listened."""
        failure = self._store.status(name).failure
        assert failure is not None, "a job that is over before it began has a reason"
        report = supervision.read_report(self._store.path(name))
        code = report.get("last_exit", {}).get("exit_code")
        if failure.code == "MASTER_LOST" and (
            code == job_directory.NO_MASTER_PACKAGE or lacks_module(self._command)
        ):
            remedy = self._store.runtime.install_remedy(self._command)
            failure = replace(failure, remedy=remedy)
        return codec.error_of(failure)

    def _abandon(self, name: str) -> None:
        """Leave nothing running of a job whose master did not come up."""
        instances.end(end_supervision(self._store.path(name)), instances.MASTER_GRACE_S)
        with contextlib.suppress(EdlError):  # the caller has the reason, such as the same engine
            workers = self._store.runtime.workers(self._store.path(name))
            instances.end(workers, instances.WORKER_GRACE_S)
            self._store.runtime.remove(self._store.path(name))
