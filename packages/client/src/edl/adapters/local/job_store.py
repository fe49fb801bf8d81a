"""The jobs of this machine: their directories, read and made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import json_format

from edl import codec
from edl.adapters import model_code
from edl.adapters.local import job_identities
from edl.adapters.local.instances import LocalInstance
from edl.adapters.local.runtime import LocalRuntime
from edl.core import names
from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.core.platforms import PROCESSES
from edl.ports.job_backend import JobEntry
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.files import flush, open_regular, read_regular
from edl_runtime.json_texts import parse_object, parse_polled_message
from edl_runtime.local import job_directory, ownership, supervision
from edl_runtime.local.job_status import read_status
from edl_runtime.timestamps import rfc3339

_DRAFT = re.compile(r"\.(new|old)-\w{8}")

START_DEADLINE_S = 60.0
"""How long a master may take from its start to master.json: imports, and indexing the data."""


def submission_time() -> str:
    """Now, as specifications have it (RFC 3339)."""
    return rfc3339(time.time(), "seconds")


@dataclass(frozen=True, slots=True)
class MasterRecord:
    """The address and the process of a job's master, present or past."""

    address: str
    process: LocalInstance
    dashboard_url: str
    incarnation: str

    @property
    def is_alive(self) -> bool:
        """Whether it is there, as far as is known: of an engine that is away nothing is."""
        try:
            return self.process.is_alive
        except EdlError:
            return False

    def is_same_master(self, other: MasterRecord) -> bool:
        """Return whether both are records of one master."""
        return (self.address, self.incarnation) == (other.address, other.incarnation)


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One look at a job's directory."""

    name: str
    path: Path
    spec: job_pb2.JobSpec
    master: MasterRecord | None
    status: JobStatus

    @property
    def master_is_alive(self) -> bool:
        return self.master is not None and self.master.is_alive

    @property
    def is_over(self) -> bool:
        return self.status.state.is_over


class JobStore:
    """Directories of jobs below ``$EDL_HOME/jobs``.

    Args:
        root: folder of all jobs; by default that of ``edl_runtime.local.job_directory``.
        runtime: finds the processes of a job.
    """

    def __init__(self, root: Path | None, runtime: LocalRuntime) -> None:
        self.root = root or job_directory.jobs()
        self.runtime = runtime

    def path(self, name: str) -> Path:
        return self.root / name

    def entries(self) -> list[JobEntry]:
        """Return all jobs."""
        try:
            entries = [entry for entry in os.scandir(self.root) if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EdlError(
                ErrorCode.SYSTEM,
                f"the folder of jobs cannot be read: {error.strerror}",
                where=str(self.root),
                remedy="Set EDL_HOME to a folder that you may read and write.",
            ) from error
        found = []
        for entry in entries:
            if not self.has(entry.name):
                continue  # another user's, a draft, or what pretends to be a job
            for file in (job_directory.SPEC, ""):  # a damaged job may have lost its specification
                with contextlib.suppress(OSError):
                    created_s = os.stat(os.path.join(entry.path, file)).st_mtime
                    found.append(JobEntry(entry.name, created_s))
                    break
        return found

    def has(self, name: str) -> bool:
        """Return whether there is a job of this name; it may be damaged."""
        return not names.find_fault(name) and ownership.is_own(self.path(name))

    def platform(self, name: str) -> str:
        """Return the platform that a job was submitted to, also if its specification is damaged."""
        path = self.path(name)
        try:
            spec = parse_object(read_regular(path / job_directory.SPEC))
            return str(spec.get("platform") or PROCESSES.name)
        except (OSError, ValueError):
            pass
        try:
            return read_regular(path / job_directory.PLATFORM).decode() or PROCESSES.name
        except (OSError, ValueError):
            return PROCESSES.name

    def create(
        self, name: str, spec: job_pb2.JobSpec, supervisor: Sequence[str], master: Sequence[str]
    ) -> bool:
        """Make the directory of a new job, whole or not at all.

        Every client that looks at a job that exists can start it, also if this client is killed
        now, or the machine loses its power.

        Args:
            spec: of the job.
            supervisor, master: commands, as ``supervision.describe`` takes them.

        Returns:
            False if the name is taken, also by a submission at this moment.

        Raises:
            EdlError: OUTPUT_UNWRITABLE, DISK_FULL or SYSTEM; FORBIDDEN where other users can
                change directories of jobs.
        """
        try:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            # Made elsewhere and renamed: no process ever sees a job without its spec.
            with self._draft(".new-") as draft:
                if not ownership.is_own(draft):
                    raise EdlError(
                        ErrorCode.FORBIDDEN,
                        "other users can change the folder of jobs, and its programs run"
                        " with your rights",
                        where=str(self.root),
                        remedy="Set EDL_HOME to a folder that only you can write, or take away"
                        f" the rights of others: chmod o-w {self.root}",
                    )
                # An export uses the copy of its job.
                code = spec.model.code
                if code.files and not code.copies and not spec.HasField("containers"):
                    model_code.copy_code(spec.model, draft, self.path(name).absolute())
                job_identities.create(draft, spec)
                (draft / job_directory.SPEC).write_text(codec.to_json(spec))
                (draft / job_directory.PLATFORM).write_text(spec.platform)
                (draft / job_directory.LOGS).mkdir()
                supervision.describe(draft, supervisor, master)
                for path in (*draft.iterdir(), draft):
                    flush(path)
                try:
                    draft.rename(self.path(name))
                except OSError as error:
                    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                        return False
                    raise
                flush(self.root)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise EdlError(
                ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_UNWRITABLE,
                f"the job's directory cannot be created: {error.strerror or error}",
                where=str(self.path(name)),
                remedy="Free some space there, or set EDL_HOME to a folder that can be written.",
            ) from error
        return True

    def read(self, name: str) -> StoredJob:
        """Return the job of this name; start a supervisor if the last one ended with its master.

        Raises:
            EdlError: JOB_NOT_FOUND, or DATA_DAMAGED if its directory cannot be read.
        """
        path = self.path(name)
        if not self.has(name):
            raise self.unknown(name)
        spec = job_pb2.JobSpec()
        try:
            parse_polled_message(read_regular(path / job_directory.SPEC), spec)
        except (OSError, json_format.ParseError) as error:
            reason = getattr(error, "strerror", None) or error
            raise EdlError(
                ErrorCode.DATA_DAMAGED,
                f"the description of job {name} cannot be read: {reason}",
                where=str(path / job_directory.SPEC),
                remedy=f"Delete the job: edl delete {name} --yes",
            ) from error
        master = self.master(name)
        status = self.status(name, spec)
        return StoredJob(name, path, spec, master, self._state_of(path, status, master))

    def unknown(self, name: str) -> EdlError:
        """Return the error for a name that no job of this user has."""
        path = self.path(name)
        if not names.find_fault(name) and path.is_dir() and not ownership.is_own(path):
            return EdlError(
                ErrorCode.FORBIDDEN,
                f"other users can change the directory of job {name}, or it is another user's",
                where=str(path),
                remedy="A job's directory names commands that run with your rights. Work as the"
                " user whose job it is, and set EDL_HOME to a folder that only you can write.",
            )
        return EdlError(
            ErrorCode.JOB_NOT_FOUND,
            f"there is no job named {name or repr(name)}",
            where=str(self.root),
            remedy="edl list shows all jobs.",
        )

    def _state_of(self, path: Path, status: JobStatus, master: MasterRecord | None) -> JobStatus:
        """Return the status with the state that follows from what is left of the master."""
        if status.state.is_final:
            return status
        supervised = supervision.commands(path) is not None
        if supervised:
            supervision.ensure(path)
        if master is not None and master.is_alive:
            return replace(status, dashboard_url=status.dashboard_url or master.dashboard_url)
        if supervised:
            return status  # the supervisor starts the next master
        if master is None:
            return replace(status, state=JobState.NOT_STARTED)
        was_stopped = supervision.is_released(path)  # by edl stop --now
        return replace(status, state=JobState.CANCELLED if was_stopped else JobState.LOST)

    def master(self, name: str) -> MasterRecord | None:
        """Return the record in master.json; None while there is none."""
        try:
            facts = parse_object(read_regular(self.path(name) / job_directory.MASTER))
            return MasterRecord(
                address=str(facts["address"]),
                process=self.runtime.master(
                    self.path(name), int(facts["pid"]), int(facts["start_time"])
                ),
                dashboard_url=str(facts.get("dashboard_url", "")),
                incarnation=str(facts.get("incarnation", "")),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return None

    def status(self, name: str, spec: job_pb2.JobSpec | None = None) -> JobStatus:
        """Return the last status that the master wrote; STARTING if it wrote none.

        If the supervisor has given the master up, the job has failed with that error.
        """
        return codec.decode_status(self.status_message(name, spec))

    def status_message(self, name: str, spec: job_pb2.JobSpec | None = None) -> job_pb2.JobStatus:
        """Return the recorded status as the message that the master would send."""
        message = read_status(self.path(name))
        if spec is not None:
            message.name = message.name or name
            message.type = message.type or spec.type
            message.output = message.output or spec.output
        return message

    def events(self, name: str, after: int = 0) -> list[JobEvent]:
        """Return events with numbers above ``after``, oldest first, without a half-written line."""
        return codec.decode_events(_lines(self.path(name) / job_directory.EVENTS), after)

    def delete(self, name: str) -> None:
        """Delete a finished job: its state, logs and events; never its output.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        self.runtime.remove(self.path(name))
        try:
            # Renamed in one step, so that no process finds half a job.
            with self._draft(".old-") as doomed:
                self.path(name).rename(doomed / name)
                shutil.rmtree(doomed)
        except OSError as error:
            raise EdlError(
                ErrorCode.OUTPUT_UNWRITABLE,
                f"the job's directory cannot be removed: {error.strerror or error}",
                where=str(self.path(name)),
                remedy="Check the permissions of this folder.",
            ) from error

    @contextlib.contextmanager
    def _draft(self, prefix: str) -> Iterator[Path]:
        """Yield a folder next to the jobs; gone afterwards, unless renamed.

        Commands that have one share a lock; a command that gets it exclusively removes the drafts
        that killed commands have left.
        """
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # they have theirs, or the disk knows no locks
                fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._remove_drafts()
            with contextlib.suppress(OSError):
                fcntl.flock(root, fcntl.LOCK_SH)
            draft = Path(tempfile.mkdtemp(prefix=prefix, dir=self.root))
            try:
                yield draft
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        finally:
            os.close(root)

    def _remove_drafts(self) -> None:
        for entry in os.scandir(self.root):
            is_draft = _DRAFT.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            if is_draft and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                shutil.rmtree(entry.path, ignore_errors=True)


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_regular(path) as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line.decode(errors="replace")
    except OSError:
        return
