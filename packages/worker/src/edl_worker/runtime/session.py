"""A worker's life: register, load, join, work, leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, task_pb2
from edl_worker.concurrency.shared_state import LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.metrics import WorkerMetrics
from edl_worker.runtime.heartbeat import Heartbeat, departure
from edl_worker.runtime.loading_registration import keep_registered
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher, describe
from edl_worker.transport.master_client import MasterClient, MasterReplacedError

if TYPE_CHECKING:
    from edl_worker.tasks.task_runner import TaskRunner

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Session:
    """One worker process as the master sees it.

    Attributes:
        load: loads the model of a job; imports TensorFlow.
        metrics_port: told to the master.
        started: ``time.monotonic()`` when the process began, for the phases of the start.
    """

    settings: Settings
    client: MasterClient
    state: SharedState
    metrics: WorkerMetrics
    heartbeat: Heartbeat
    load: Callable[[job_pb2.JobSpec], TaskRunner]
    metrics_port: int
    started: float
    grace_s: float = field(default=10.0, init=False)  # until registration brings the job's own
    registrations: int = field(default=0, init=False)
    job_dir: str = field(default="", init=False)

    def run(self) -> None:
        """Work until there is nothing more to do.

        Raises:
            LeavingError: the worker has to leave; ``state.departure`` says why.
            EdlError: this worker cannot work for this job.
        """
        runner: TaskRunner | None = None
        while True:
            try:
                job = self._register()
                if runner is None:
                    runner = self._load(job)
                self._join(runner)
                self._work(runner)
            except MasterReplacedError:
                log.warning("the master was replaced: what was computed for it is dropped")
                self.state.release_all()
                if runner is not None:
                    runner.forget()

    # --- joining ---------------------------------------------------------------------------

    def _register(self) -> job_pb2.JobSpec:
        reply = self.client.register(self.metrics_port)
        self.state.replaced = False
        self.registrations += 1
        self.grace_s = reply.job.worker_grace_s
        self.job_dir = reply.job.job_dir
        self.heartbeat.start(reply.heartbeat_every_s)
        self._reached("registered")
        return reply.job

    def _load(self, job: job_pb2.JobSpec) -> TaskRunner:
        self.state.phase = task_pb2.LOADING
        with keep_registered(lambda: self.state.replaced, self._register):
            runner = self.load(job)
        self._reached("model loaded")
        return runner

    def _join(self, runner: TaskRunner) -> None:
        self.state.check()
        reply = self.client.ready(runner.describe())
        if reply.send_initial_values:
            runner.send_initial_values()
        self.state.phase = task_pb2.IDLE
        self._reached("ready")

    # --- working ---------------------------------------------------------------------------

    def _work(self, runner: TaskRunner) -> None:
        prefetcher = LeasePrefetcher(self.client, self.state, runner.pipeline)
        try:
            while True:
                self.state.phase = task_pb2.WAITING
                if self.state.replaced:
                    raise MasterReplacedError("said a heartbeat")
                match prefetcher.take():
                    case Assignment() as assignment:
                        self._do(runner, assignment, prefetcher)
                    case task_pb2.Leave() as leave:
                        self.state.leave(departure(leave.reason))
        finally:
            prefetcher.close()

    def _do(self, runner: TaskRunner, assignment: Assignment, prefetcher: LeasePrefetcher) -> None:
        """Do one task and report what became of it."""
        from edl_worker.tasks.task_runner import OutOfOrderError, TaskLostError

        lease, kind = assignment.lease, assignment.lease.task.type
        started = time.monotonic()
        outcome = "completed"
        records = 0
        try:
            done = runner.do(assignment, prefetcher)
            done.seconds = time.monotonic() - started
            self.client.complete(done)
            records = done.records
        except TaskLostError:
            outcome = "lost"
            log.warning("%s is not this worker's any more: dropped", describe(lease))
        except OutOfOrderError:
            outcome = "returned"
            log.error("%s is out of step with the master: handed back", describe(lease))
            self._return(assignment)
        except EdlError as error:
            if error.code == error_pb2.STALE_LEASE:
                outcome = "lost"
                log.warning("%s is not this worker's any more: dropped", describe(lease))
            else:
                outcome = "failed"
                log.error("%s failed\n%s", describe(lease), error)
                self._report(assignment, error, permanent=runner.is_permanent(error))
        finally:
            assignment.close()
        # Not reached when leaving or when the master was replaced: then the lease stays held,
        # to be handed back or forgotten together with the others.
        self.state.release(assignment.ref)
        self.metrics.task_ended(kind, outcome, records)
        if outcome == "completed":
            seconds = max(done.seconds, 1e-9)
            pace = f": {records} records, {records / seconds:.0f} records/s" if records else ""
            log.info("%s done in %.2f s%s", describe(lease), seconds, pace)

    def _report(self, assignment: Assignment, error: EdlError, *, permanent: bool) -> None:
        try:
            self.client.fail(error, lease=assignment.ref, permanent=permanent)
        except EdlError as refused:
            log.warning("the master did not take the report: %s", refused.what)

    def _return(self, assignment: Assignment) -> None:
        try:
            self.client.give_back(
                [assignment.ref],
                "out-of-order",
                leaving=False,
                within_s=self.settings.call_timeout_s,
            )
        except EdlError as refused:
            log.warning("the master did not take the task back: %s", refused.what)

    # --- leaving ---------------------------------------------------------------------------

    def farewell(self) -> bool:
        """Hand all leases back and say that this process ends; never raises.

        Returns whether the master has heard it.
        """
        self.state.phase = task_pb2.LEAVING
        leaving = self.state.departure
        if leaving is not None:
            log.info("leaving: %s; %s", leaving.reason, self.metrics.step_summary())
        if leaving is None or not leaving.tell or not self.registrations:
            return False
        try:
            self.heartbeat.last()
            self.client.give_back(
                self.state.leases(),
                leaving.reason,
                leaving=True,
                within_s=self.settings.farewell_s,
            )
        except (EdlError, MasterReplacedError, LeavingError) as error:
            log.info("the master did not hear the farewell: %s", error)
            return False
        return True

    def report_own_failure(self, error: EdlError, *, permanent: bool) -> None:
        """Tell the master that this worker cannot work at all; never raises."""
        if not self.registrations:
            return
        try:
            self.client.fail(error, permanent=permanent)
        except (EdlError, MasterReplacedError, LeavingError) as refused:
            log.warning("the master did not take the report: %s", refused)

    def _reached(self, phase: str) -> None:
        log.debug("%.2f s: %s", time.monotonic() - self.started, phase)
