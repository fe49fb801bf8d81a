"""The life of a worker: register, load the model, join the job, run tasks, leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.monitoring import logs
from edl_worker.concurrency.shared_state import LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.core.job import JobDescription, ModelReference
from edl_worker.core.tasks import (
    Leave,
    MasterReplacedError,
    OutOfOrderError,
    TaskLostError,
    WorkerPhase,
)
from edl_worker.metrics import WorkerMetrics
from edl_worker.metrics_server import MetricsServer
from edl_worker.model_file.submitted_files import name_in_texts, name_submitted_files
from edl_worker.runtime.heartbeat import Heartbeat, departure
from edl_worker.runtime.loading_registration import keep_registered
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.transport.task_client import TaskClient

if TYPE_CHECKING:
    from edl_worker.tasks.task_runner import TaskRunner

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Session:
    """One worker process as the master sees it.

    Attributes:
        load: loads the model of a job, once its framework is imported.
        metrics_server: gets the token that the master names.
        started: ``time.monotonic()`` when the process began, for the phases of the start.
        registrations: with how many incarnations of the master this worker has registered.
    """

    settings: Settings
    client: TaskClient
    state: SharedState
    metrics: WorkerMetrics
    heartbeat: Heartbeat
    load: Callable[[JobDescription], TaskRunner]
    metrics_server: MetricsServer
    started: float
    grace_s: float = field(default=10.0, init=False)  # until registration brings the job's own
    registrations: int = field(default=0, init=False)
    _model: ModelReference = field(default=ModelReference("", ""), init=False)
    _runner: TaskRunner | None = field(default=None, init=False)

    def run(self) -> None:
        """Work until there is nothing more to do.

        Raises:
            LeavingError: the worker has to leave; ``state.departure`` says why.
            EdlError: this worker cannot work for this job.
        """
        while True:
            try:
                job = self._register()
                if self._runner is None:
                    self._runner = self._load(job)
                self._join(self._runner)
                self._work(self._runner)
            except MasterReplacedError:
                log.warning("the master was replaced: results for the former one are dropped")
                self.state.release_all()
                if self._runner is not None:
                    self._runner.forget_parameters()

    # --- joining ---------------------------------------------------------------------------

    def _register(self) -> JobDescription:
        registration = self.client.register()
        self.metrics_server.admit(registration.metrics_token, open_to_all=registration.open_metrics)
        self.state.master_replaced = False
        self.registrations += 1
        job = registration.job
        self.grace_s = job.grace_s
        self._model = job.model
        self.heartbeat.start(registration.heartbeat_every_s)
        logs.identify(job=job.name)
        self._log_phase("registered")
        return job

    def _load(self, job: JobDescription) -> TaskRunner:
        self.state.phase = WorkerPhase.LOADING
        with keep_registered(lambda: self.state.master_replaced, self._register):
            runner = self.load(job)
        self._log_phase("model loaded")
        return runner

    def _join(self, runner: TaskRunner) -> None:
        self.state.check()
        warnings = name_in_texts(runner.model.warnings, self._model)
        runner.join(self.client.ready(replace(runner.model, warnings=warnings)))
        self.state.phase = WorkerPhase.IDLE
        self._log_phase("ready")

    # --- working ---------------------------------------------------------------------------

    def _work(self, runner: TaskRunner) -> None:
        prefetcher = LeasePrefetcher(self.client, self.state, runner.minibatches)
        try:
            while True:
                self.state.phase = WorkerPhase.WAITING
                if self.state.master_replaced:
                    raise MasterReplacedError("a heartbeat was answered by another master")
                match prefetcher.take(runner.take_part):
                    case Assignment() as assignment:
                        with logs.task_context(str(assignment.lease.task)):
                            self._run_task(runner, assignment, prefetcher)
                    case Leave(reason):
                        self.state.leave(departure(reason))
        finally:
            prefetcher.close()

    def _run_task(
        self, runner: TaskRunner, assignment: Assignment, prefetcher: LeasePrefetcher
    ) -> None:
        """Run one task and report its result."""
        lease = assignment.lease
        started = time.monotonic()
        records = 0
        try:
            result = runner.run(assignment, prefetcher)
            seconds = max(time.monotonic() - started, 1e-9)
            result.warnings = name_in_texts(result.warnings, self._model)
            self.client.complete(lease.ref, result)
        except TaskLostError:
            outcome = "lost"
            log.warning("%s is no longer this worker's: dropped", lease)
        except OutOfOrderError:
            outcome = "returned"
            log.error("the master has other counts for %s: returned", lease)
            self._return(assignment)
        except EdlError as error:
            outcome = self._on_error(runner, assignment, error)
        else:
            outcome, records = "completed", result.records
            rate = f": {records} records, {records / seconds:.0f} records/s" if records else ""
            log.info("%s done in %.2f s%s", lease, seconds, rate)
        finally:
            assignment.close()
        # Not reached when leaving or when the master was replaced: then the lease stays held,
        # to be returned or dropped together with the others.
        self.state.release(lease.ref)
        self.metrics.record_task_end(lease.task.type, outcome, records)

    def _on_error(self, runner: TaskRunner, assignment: Assignment, error: EdlError) -> str:
        lease = assignment.lease
        if error.code == ErrorCode.STALE_LEASE:
            log.warning("%s is no longer this worker's: dropped", lease)
            return "lost"
        log.error("%s failed\n%s", lease, error)
        try:
            self.client.fail(
                self._name_files(error), ref=lease.ref, permanent=runner.is_permanent(error)
            )
        except EdlError as rejection:
            log.warning("the master rejected the report: %s", rejection.what)
        return "failed"

    def _name_files(self, error: EdlError) -> EdlError:
        return name_submitted_files(error, self._model)

    def _return(self, assignment: Assignment) -> None:
        try:
            self.client.return_leases(
                [assignment.lease.ref],
                "out-of-order",
                leaving=False,
                within_s=self.settings.call_timeout_s,
            )
        except EdlError as rejection:
            log.warning("the master rejected the returned task: %s", rejection.what)

    # --- leaving ---------------------------------------------------------------------------

    def report_departure(self, *, leaves_group: bool) -> bool:
        """Return all leases and report that this process ends; never raises.

        Args:
            leaves_group: end as a member of the replica group, too, which only the session can.

        Returns:
            Whether the master has confirmed it.
        """
        self.state.phase = WorkerPhase.LEAVING
        leaving = self.state.departure
        if leaving is not None:
            log.info("leaving: %s; %s", leaving.reason, self.metrics.step_summary())
        if leaving is None or not leaving.report or not self.registrations:
            return False
        try:
            self.heartbeat.send_last()
            self.client.return_leases(
                self.state.leases(),
                leaving.reason,
                leaving=True,
                within_s=self.settings.leave_timeout_s,
            )
        except (EdlError, MasterReplacedError, LeavingError) as error:
            log.info("the master has not confirmed the departure: %s", error)
            return False
        if leaves_group:
            self._leave_group()
        return True

    def _leave_group(self) -> None:
        if self._runner is not None:
            try:
                self._runner.leave(self.grace_s)  # the main thread ends the process in time
            except (EdlError, MasterReplacedError, LeavingError) as error:
                log.info("the group has not confirmed the departure: %s", error)

    def report_own_failure(self, error: EdlError, *, permanent: bool) -> None:
        """Report that this worker cannot work at all; never raises."""
        if not self.registrations:
            return
        try:
            self.client.fail(self._name_files(error), permanent=permanent)
        except (EdlError, MasterReplacedError, LeavingError) as rejection:
            log.warning("the master rejected the report: %s", rejection)

    def _log_phase(self, phase: str) -> None:
        log.debug("%.2f s: %s", time.monotonic() - self.started, phase)
