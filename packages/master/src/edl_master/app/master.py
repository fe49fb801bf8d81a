"""The composition root: the only place where the concrete parts of a master meet.

A master is composed in three stages: ``state`` opens data and storage and restores the job,
``services`` builds everything that serves it, ``threads`` starts the clock. A master runs until its
job has ended, and is closed. No worker instance survives it unless its job continues.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.saved_page import save_page, saved_page
from edl_master.app.host_environment import HostEnvironment
from edl_master.app.services import MasterServices
from edl_master.app.state import clear_up, open_state
from edl_master.app.threads import MasterThreads
from edl_master.config.job_config import Config
from edl_master.control.worker_instances import adopt_instances
from edl_master.core.effects import JobPhase, LogEvent, Severity
from edl_master.core.events import InstanceFound
from edl_master.core.outcome import JobEnd
from edl_master.core.settings import JobType
from edl_master.parameters.job_model import was_replicated
from edl_master.recovery.restart import RESTART, SUPERSEDED, SUSPENDED, RestartCount
from edl_master.reporting.job_report import JobReport
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2
from edl_runtime.local import process_identity

log = logging.getLogger(__name__)

_CHECK_S = 0.2
"""Seconds between two checks for a lost parameter server, or for a signal."""

_LAST_CHECKPOINT_S = 600.0
"""How long the last checkpoint may take to be written."""


class MasterApp:
    """One master of one job.

    Args:
        config: of the job.
        directory: of the job, locked by this process.
        host_environment: where the master runs.

    Raises:
        EdlError: the job cannot be started; everything that was opened is closed again.
    """

    def __init__(
        self, config: Config, directory: JobDirectory, host_environment: HostEnvironment
    ) -> None:
        self._config = config
        self._directory = directory
        self._host_environment = host_environment
        self._incarnation = host_environment.incarnation
        with ExitStack() as opened:
            self._state = open_state(config, directory, self._incarnation, opened)
            if (saved := self._state.restored.saved) is not None:
                config = config.continue_in(replicated=was_replicated(saved))
            self._services = MasterServices(
                config,
                directory,
                host_environment,
                self._state,
                opened,
            )
            # If there are parameter servers, they have taken the count.
            self._restarts = RestartCount() if config.parameter_servers else RestartCount.take()
            self._threads = MasterThreads(self._services, config.intervals.tick_s)
            self._opened = opened.pop_all()

    @property
    def address(self) -> str:
        """The address for workers and clients of this machine."""
        return self._services.address

    @property
    def dashboard_url(self) -> str:
        """The URL of the job's page."""
        return self._services.dashboard_url

    @property
    def report(self) -> JobReport:
        """The job's status, events and metrics."""
        return self._services.report

    @property
    def received_signal(self) -> signal.Signals | None:
        """The signal that suspended the job; None if there was none."""
        return self._threads.received_signal

    # --- a master's life -------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def take_signals(self) -> None:
        """Suspend the job on SIGTERM and SIGINT; for the main thread of a process.

        These signals come from a reboot, a supervisor or an operator of the machine. Users stop
        jobs by the command, which is recorded (docs/adr/0016).
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._threads.receive)

    def run(self) -> int:
        """Work on the job until it has ended.

        Returns:
            The exit code of the process, ``RESTART``, ``SUSPENDED``, or ``SUPERSEDED``.
        """
        services = self._services
        self._announce()
        for found in adopt_instances(services.platform, keep=self._state.keeps_workers):
            services.handle(InstanceFound(found.worker, found.instance, found.attempt))
        self._threads.start(trains=self._config.type is JobType.TRAIN)
        services.report_writer.start(services.report.status)
        while (end := services.controller.wait_for_end(_CHECK_S)) is None:
            if (lost := self._find_loss()) and self._roll_back(lost):
                return RESTART
            if self._host_environment.is_superseded():
                services.suspended = True
                return SUPERSEDED
            if self.received_signal is not None:
                self._suspend(self.received_signal)
                return SUSPENDED
        # Nothing final is written without certainty that no later master works on the job.
        if not self._host_environment.confirm():
            services.suspended = True
            return SUPERSEDED
        if not self._complete_files(end):
            return RESTART
        status = self._finish(end)
        # The client has seen the end, or will read status.json.
        services.acknowledged.wait(self._config.intervals.acknowledge_s)
        self._threads.leave.wait(self._config.spec.serving.keep_page_s)
        return 0 if status.state == job_pb2.SUCCEEDED else 1

    def _announce(self) -> None:
        """Write where the master is to the job's directory."""
        pid = os.getpid()
        self._directory.write_master(
            {
                "address": self.address,
                "pid": pid,
                "start_time": process_identity.start_time(pid) or 0,
                "dashboard_url": self.dashboard_url,
                "incarnation": self._incarnation,
                "started_at": self.report.started_at,
            }
        )

    def _find_loss(self) -> str:
        """Return how values of the job were lost, in words; empty while all are there."""
        services = self._services
        if services.servers is not None:
            return services.servers.check()
        lost = "All workers that had the values of the model are gone"
        return lost if services.controller.is_rolled_back else ""

    def _roll_back(self, lost: str) -> bool:
        """Prepare a restart from the last snapshot; False if the job fails instead."""
        self._services.suspended = True  # later errors only follow from this loss
        servers = self._services.servers
        try:
            if servers is not None:
                servers.prepare_rollback()
            else:
                self._restarts.prepare_rollback(
                    self._state.restored.version,
                    lost,
                    "workers",
                    "See logs/worker-N.log in the job's directory.",
                )
        except EdlError as error:
            self._services.suspended = False
            self._services.fail(error)
            return False
        line = f"{lost}; the job is rolled back to its last snapshot."
        kind = "ParameterServerLost" if servers is not None else "ValuesLost"
        self._record(LogEvent(kind, line, Severity.WARNING))
        return True

    def _suspend(self, received: signal.Signals) -> None:
        """Keep the state as it is on the disk; workers wait for the next master."""
        self._services.suspended = True  # an error from here on does not end the job
        line = f"The master received {received.name} and ends; the job's state is kept."
        self._record(LogEvent("MasterSuspended", line, Severity.WARNING))
        if not self._host_environment.keeps_instances():
            self._services.platform.close(self._config.worker_grace_s)

    def _record(self, event: LogEvent) -> None:
        self._services.effects.record(event, self._services.controller.seconds)
        self._state.event_log.flush()

    def close(self) -> None:
        """Close everything; no instance is left after this."""
        self._threads.close()
        self._services.plane.end_waits()
        self._opened.close()

    def _complete_files(self, end: JobEnd) -> bool:
        """Wait for files that are being written; False if the master has to roll back instead.

        A parameter server may be lost in the middle of the last checkpoint. A job that fails
        anyway does without that; any other one is brought to its end again by the next master.
        """
        effects, servers = self._services.effects, self._services.servers
        closing = threading.Thread(
            target=effects.close, args=(_LAST_CHECKPOINT_S,), name="end-effects", daemon=True
        )
        closing.start()
        while closing.is_alive():
            closing.join(_CHECK_S)
            if servers is None or servers.group.over or not (lost := servers.check()):
                continue
            if end.phase is not JobPhase.FAILED and self._roll_back(lost):
                return False
            servers.group.close()
        return True

    def _finish(self, end: JobEnd) -> job_pb2.JobStatus:
        """Bring everything to disk, and return the final status."""
        services = self._services
        services.platform.close(self._config.intervals.workers_leave_s)
        if services.servers is not None:
            services.servers.close()
        self._threads.stop_clock()
        try:
            services.report_writer.stop()
        except Exception as error:
            self._services.fail(error)
        status = services.report.final_status(end, services.failure)
        services.spans.record_job(status)
        try:
            self._directory.write_end(status)
            clear_up(self._config, status)
            self._directory.write_status(status, final=True)
            # Events that a full disk did not take: clearing may have made room.
            self._state.event_log.flush()
        except Exception:
            log.exception("the final status cannot be written")
        try:
            self._save_page(status)
        except Exception:
            log.exception("the page of the job is not saved")
        services.report.seal(status)
        log.info("the job ended: %s", job_pb2.JobState.Name(status.state))
        return status

    def _save_page(self, status: job_pb2.JobStatus) -> None:
        """Put the page next to the output, if the user wants it, and unless this is an export."""
        config = self._config
        wanted = config.output and config.spec.serving.save_page
        if wanted and status.state == job_pb2.SUCCEEDED and not config.spec.export.job:
            report = self._services.report
            page = saved_page(status, report.events, report.times())
            save_page(config.output, page)
