"""Continues jobs of this machine: resumes them, and exports their models."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edl import codec
from edl.adapters import model_code
from edl.adapters.local import instances
from edl.adapters.local.job_processes import end_supervision
from edl.adapters.local.job_store import JobStore, MasterRecord, StoredJob, submission_time
from edl.adapters.local.launcher import LocalLauncher, supervisor_command
from edl.adapters.local.runtime import LocalRuntime
from edl.core import names
from edl.core.job_status import JobState, JobStatus, check_more_epochs, next_steps
from edl.core.model_code import describe_changes
from edl.core.platforms import PLATFORMS
from edl.core.problem import Problem
from edl.job_spec import export_fields, start_fields
from edl.ports.job_backend import Say, silent
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.files import open_appending, replace_file
from edl_runtime.local import job_directory, supervision
from edl_runtime.local.job_status import read_status

if TYPE_CHECKING:
    from edl.ports.job_backend import JobBackend


class LocalContinuation:
    """The ``JobContinuation`` of this machine (docs/adr/0019).

    Args:
        backend: of the same jobs.
        store: their directories.
        runtime: starts and finds the processes of a job.
    """

    def __init__(self, backend: JobBackend, store: JobStore, runtime: LocalRuntime) -> None:
        self._backend = backend
        self._store = store
        self._runtime = runtime

    def next_steps(self, status: JobStatus) -> str:
        in_image = PLATFORMS[self._runtime.platform].runs_in_image
        return next_steps(status, takes_code=not in_image)

    def resume(
        self,
        name: str,
        say: Say = silent,
        *,
        num_epochs: int | None = None,
        new_code: bool = False,
    ) -> bool:
        self._backend.status(name, ask=False)  # another backend's job is none of this one
        with _one_at_a_time(self._store.path(name)):
            stored = self._store.read(name)
            if num_epochs is not None:
                _check_epochs(stored, num_epochs)
            if not stored.is_over:
                return False
            if stored.status.state is JobState.SUCCEEDED and num_epochs is None:
                raise _over(stored.status, "there is nothing to continue")
            end_job(self._runtime, stored.path, stored.master)
            self._runtime.remove(stored.path)
            if new_code:
                _take_new_code(stored)
            if not _reopen(stored, num_epochs):
                raise _over(stored.status, "there is nothing to continue")
            command = self._runtime.master_command()
            supervision.describe(stored.path.absolute(), supervisor_command(), command)
            LocalLauncher(self._store, command).start(name, former=stored.master)
        return True

    def export(
        self, name: str, output: str = "", say: Say = silent, *, overwrite: bool = False
    ) -> str:
        self._backend.status(name, ask=False)
        stored = self._store.read(name)
        own = names.add_suffix(stored.spec.export.job or name, "export")
        spec = _export_spec(stored, own, self._store.path(own).absolute(), output, overwrite)
        self._runtime.admit_export(spec, stored.path.parent)
        if self._store.has(own):
            if not self._store.read(own).is_over:
                raise EdlError(
                    ErrorCode.JOB_EXISTS,
                    f"the model of {name} is being exported",
                    where=str(self._store.path(own)),
                    remedy=f"edl wait {own} waits for its end.",
                )
            self._backend.delete(own)
        command = self._runtime.master_command()
        if not self._store.create(own, spec, supervisor_command(), command):
            # Another command has begun meanwhile.
            return self.export(name, output, overwrite=overwrite)
        try:
            LocalLauncher(self._store, command).start(own)
        except EdlError as error:
            if error.code == ErrorCode.OUTPUT_EXISTS:
                # The error says everything; a failed job would only stay in lists.
                self._backend.delete(own)
            raise
        return own


def end_job(runtime: LocalRuntime, path: Path, master: MasterRecord | None) -> None:
    """End what is left of a job that is over; nothing starts it again.

    Raises:
        EdlError: ENGINE_UNAVAILABLE; its containers may go on.
    """
    runtime.check(path)
    instances.end(end_supervision(path), instances.MASTER_GRACE_S)
    # A master that only serves the page of its finished job ends with the job.
    if master is not None:
        instances.end([master.process], instances.MASTER_GRACE_S)
    instances.end(runtime.workers(path), instances.WORKER_GRACE_S)


# --- resuming ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process at a time enter the context, for each job.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    try:
        lock = open_appending(path / job_directory.RESUME_LOCK)
    except OSError as error:
        raise _unwritable(path, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_epochs(job: StoredJob, num_epochs: int) -> None:
    """Raises: EdlError: the job cannot be continued with so many epochs."""
    training = job.spec.training
    from edl.adapters import storage  # reads data formats with numpy, which takes long to import

    try:
        has_state = bool(training.checkpoint_dir) and any(
            re.fullmatch(rf"{re.escape(job.name)}-\d{{8}}", each)
            for each in storage.names(training.checkpoint_dir)
        )
        check_more_epochs(job.status, training.num_epochs, num_epochs, has_state=has_state)
    except storage.StoreError as error:
        raise EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"the checkpoints cannot be listed: {error}",
            where=training.checkpoint_dir,
            remedy=error.remedy,
        ) from None
    except Problem as problem:
        raise codec.error_of(problem) from None


def _reopen(job: StoredJob, num_epochs: int | None) -> bool:
    """Make a job that is over one that continues; nothing of it runs.

    The only writer of these files at this moment, as it holds the locks of supervisor and master.
    No supervisor is started before the launcher has described how.

    Args:
        num_epochs: how many it has from now on; None: as before.

    Returns:
        False if it has succeeded and gets no more epochs.

    Raises:
        EdlError: JOB_EXISTS if a process of the job is still there; OUTPUT_UNWRITABLE.
    """
    path = job.path
    try:
        with _sole_owner(path):
            status = read_status(path)
            end = job_directory.read_object(path / job_directory.END)
            if num_epochs is None and end.get("state") == "SUCCEEDED":
                # Its master was killed after that was decided.
                (path / job_directory.END).replace(path / job_directory.STATUS)
                return False
            requests = job_directory.read_object(path / job_directory.REQUESTS)
            if requests.pop("stop", None) is not None:
                replace_file(
                    path / job_directory.REQUESTS,
                    json.dumps(requests, indent=2).encode(),
                    durable=True,
                )
            status.state = job_pb2.STARTING
            for name in ("error", "incarnation", "finished_at"):
                status.ClearField(name)
            if (path / job_directory.STATUS).exists():
                replace_file(
                    path / job_directory.STATUS, codec.to_json(status).encode(), durable=True
                )
            if num_epochs is not None:
                job.spec.training.num_epochs = num_epochs
                replace_file(
                    path / job_directory.SPEC, codec.to_json(job.spec).encode(), durable=True
                )
            for name in (job_directory.END, job_directory.SUPERVISION):
                (path / name).unlink(missing_ok=True)
            return True
    except OSError as error:
        raise _unwritable(path, error) from error


def _take_new_code(stored: StoredJob) -> None:
    """Let a job that is over continue with a copy of its model files as they are now.

    Raises:
        EdlError: MODEL_NOT_FOUND or OUTPUT_UNWRITABLE.
    """
    spec, path = stored.spec, stored.path.absolute()
    before = dict(spec.model.code.files)
    try:
        model_code.copy_code(spec.model, path, path)
        spec.model.code.change = describe_changes(before, spec.model.code.files)
        replace_file(path / job_directory.SPEC, codec.to_json(spec).encode(), durable=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    for former in (path / model_code.FOLDER).iterdir():
        if str(former) != spec.model.code.copies:
            shutil.rmtree(former, ignore_errors=True)


def _unwritable(path: Path, error: OSError) -> EdlError:
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the job's directory cannot be written: {error.strerror or error}",
        where=str(path),
        remedy="Free some space there, and try again.",
    )


@contextlib.contextmanager
def _sole_owner(path: Path) -> Iterator[None]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    supervisor = supervision.hold(path)
    try:
        if supervisor is None:
            raise BlockingIOError
        supervision.take_lock(directory)
        yield
    except BlockingIOError:
        raise EdlError(
            ErrorCode.JOB_EXISTS,
            "processes of the job are still ending",
            where=str(path),
            remedy="Try again in a few seconds.",
        ) from None
    finally:
        os.close(directory)
        if supervisor is not None:
            supervisor.close()


# --- exporting ---------------------------------------------------------------------------------


def _export_spec(
    job: StoredJob, name: str, path: Path, output: str, overwrite: bool
) -> job_pb2.JobSpec:
    """Return the specification of a job that exports the model of another one.

    Raises:
        EdlError: USAGE or JOB_OVER.
    """
    if job.spec.type != job_pb2.TRAIN:
        raise EdlError(
            ErrorCode.USAGE,
            f"{job.name} is not a training job, so there is no model to export",
            where=job.name,
            remedy="edl list shows all jobs.",
        )
    if job.status.state is JobState.SUCCEEDED and not job.spec.training.checkpoint_dir:
        raise _over(job.status, f"its model is in {job.status.output or job.spec.output}")
    spec = job_pb2.JobSpec()
    spec.CopyFrom(job.spec)
    start_fields(spec, name, str(path), submission_time())
    snapshots = str(job.path.absolute() / job_directory.SNAPSHOTS)
    export_fields(spec, job.name, snapshots, output, overwrite)
    spec.serving.dashboard_port = 0
    return spec


def _over(status: JobStatus, why: str) -> EdlError:
    return EdlError(
        ErrorCode.JOB_OVER,
        f"{status.job} has succeeded: {why}",
        where=status.job,
        remedy=f"edl status {status.job} shows its result. edl resume {status.job} --num-epochs N "
        "trains more epochs if it has a --checkpoint-dir; else edl train --init-from "
        f"{status.output or 'DIR'} starts from its model.",
    )
