"""Starts a master from a job's directory, or writes a status that says why it cannot."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from edl_master.adapters.event_log import EventLog, make_event
from edl_master.adapters.job_directory import JobDirectory
from edl_master.app.host_environment import HostEnvironment
from edl_master.app.master import MasterApp
from edl_master.app.state import clear_up
from edl_master.config import job_config
from edl_master.control.effect_executor import failure_from_exception
from edl_master.core.failure import Failure
from edl_master.recovery.restart import (
    RESTART,
    SUPERSEDED,
    SUSPENDED,
    end_at_once,
    end_by_signal,
    inherited_lock,
    restart_program,
)
from edl_master.reporting.status_codec import failed_status
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory, output_reservation, supervision

log = logging.getLogger(__name__)

FAILED = 1
"""Exit code of a master whose job did not succeed."""


def run(job_dir: Path) -> int:
    """Work on a job of this machine until it has ended; return the exit code."""
    directory = JobDirectory(job_dir)
    try:
        directory.lock.hold(inherited_lock())
    except EdlError as error:
        # Another master holds the directory, or it does not exist: write nothing to it.
        log.error("%s", error)
        return job_directory.DIRECTORY_TAKEN if error.code == ErrorCode.JOB_EXISTS else FAILED
    if supervision.is_released(job_dir):
        # A command that stopped the job could not see this process before it held the directory.
        log.info("the job was stopped while this master started")
        return job_directory.DIRECTORY_TAKEN
    directory.lock.watch_supervisor()
    return work(directory, HostEnvironment())


def work(directory: JobDirectory, host_environment: HostEnvironment) -> int:
    """Work on the job whose directory this process holds until it has ended; return the exit code.

    A job that cannot be started ends FAILED, with the reason in its status.
    """
    job_dir = directory.path
    if directory.is_over:
        # A former master ended the job while this one was starting.
        log.info("the job has already ended")
        return 0
    if (end := directory.read_end()) is not None:
        return _finish(directory, end)
    spec = job_pb2.JobSpec(name=job_dir.name)
    try:
        with directory.lock.heartbeats():
            spec = directory.read_spec()
            master = MasterApp(job_config.read(spec, job_dir), directory, host_environment)
    except Exception as error:
        log.error("the job cannot be started\n%s", error)
        _fail(directory, spec, failure_from_exception(error), host_environment)
        directory.lock.release()
        return FAILED
    with master:
        master.take_signals()
        try:
            code = master.run()
            if code == RESTART:
                restart_program(directory.lock.make_inheritable())
            if code == SUPERSEDED:
                end_at_once(job_directory.DIRECTORY_TAKEN)
            if code == SUSPENDED and master.received_signal is not None:
                end_by_signal(master.received_signal)
            return code
        except Exception as error:
            log.exception("the master ends")
            _fail(directory, spec, failure_from_exception(error), host_environment)
            return FAILED
        finally:
            directory.lock.release()


def _finish(directory: JobDirectory, end: job_pb2.JobStatus) -> int:
    """Complete the end of a job whose master was killed in the middle of it."""
    log.info("the job has ended; completing its last steps")
    try:
        clear_up(job_config.read(directory.read_spec(), directory.path), end)
    except Exception:
        log.exception("files that the job no longer needs cannot be removed")
    try:
        directory.remove_drafts()
        directory.write_status(end, final=True)
    except EdlError as error:
        log.error("the final status cannot be written\n%s", error)
        return FAILED
    return 0


def _fail(
    directory: JobDirectory,
    spec: job_pb2.JobSpec,
    failure: Failure,
    host_environment: HostEnvironment,
) -> None:
    """Write a final status and an event that say why the job did not start.

    A master that a later one has replaced ends at once instead: its failure is not the job's.
    """
    if not host_environment.confirm():
        end_at_once(job_directory.DIRECTORY_TAKEN)
    output_reservation.release(spec.output, directory.path)
    # The counts of earlier masters stay.
    status = directory.read_status()
    status.MergeFrom(failed_status(spec, failure, time.time()))
    try:
        directory.write_status(status, final=True)
        event_log = EventLog(directory.path / job_directory.EVENTS)
        event_log.add(make_event("JobFailed", "error", failure.what, {"code": failure.code}, 0.0))
        event_log.close()
    except EdlError as error:
        log.error("the failure cannot be written to the job's directory either\n%s", error)
