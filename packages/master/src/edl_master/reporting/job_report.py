"""The status of a job, for the job's page, clients and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edl_master.adapters.event_log import EventLog
from edl_master.codec import error_to
from edl_master.core.effects import LogEvent
from edl_master.core.failure import Failure
from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_master.core.identifiers import TaskType
from edl_master.core.outcome import JobEnd
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.timeline_summary import JobTimes
from edl_master.core.view import JobView
from edl_master.metrics.instruments import Metrics
from edl_master.reporting.curves import Curves
from edl_master.reporting.job_settings import name_strategy, settings_of
from edl_master.reporting.status_codec import StatusContext, phase_to, status_to
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_master.reporting.worker_environments import WorkerEnvironments
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.installed_versions import installed_versions
from edl_runtime.timestamps import rfc3339


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about a job that do not change while a master runs it.

    Attributes:
        spec: what the job was asked for.
        output: where its result goes.
        incarnation: of the master.
        files: names of the files that tasks of each type read.
        gpus: which worker has which GPU.
    """

    spec: job_pb2.JobSpec
    output: str
    incarnation: str
    files: Mapping[TaskType, Sequence[str]]
    gpus: GpuAssignment = NO_GPUS


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The records of a job so far.

    Attributes:
        event_log: its events.
        curves: its loss and metrics.
        timeline: what its workers did when.
        started_at: RFC 3339; when its first master started.
        restarts: of its master, up to this one.
    """

    event_log: EventLog
    curves: Curves
    timeline: TimelineRecorder
    started_at: str
    restarts: int


class JobReport:
    """One job's status, events, timeline and metrics; implements ``adapters.http.StatusSource``.

    Args:
        facts: name, output and data of the job.
        view: returns the job as it is now.
        history: its events, curves and timeline.
        registry: its metrics for Prometheus.
        dashboard_url: of the job's page, once that is served.
        servers: the parameter servers as they are.
        table_rows: rows of each embedding table.

    Attributes:
        worker_environments: takes what workers say that they run with.
    """

    def __init__(
        self,
        facts: JobFacts,
        view: Callable[[], JobView],
        history: JobHistory,
        registry: Metrics,
        dashboard_url: Callable[[], str],
        servers: Callable[[], list[job_pb2.ParameterServerStatus]] = list,
        table_rows: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.started_at = history.started_at
        self._facts = facts
        self._settings = settings_of(facts.spec)
        self._environment = installed_versions()
        self.worker_environments = WorkerEnvironments()
        self._view = view
        self._history = history
        self._registry = registry
        self._dashboard_url = dashboard_url
        self._servers = servers
        self._table_rows = table_rows
        self._final: job_pb2.JobStatus | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether the status is final."""
        return self._final is not None

    def status(self) -> job_pb2.JobStatus:
        """Return the present status of the job."""
        if self._final is not None:
            return self._final
        status = self._status()
        # A job is over only when all its files are on the disk.
        if status.state == job_pb2.SUCCEEDED:
            status.state = job_pb2.FINISHING
        elif status.state in (job_pb2.FAILED, job_pb2.CANCELLED):
            status.state = job_pb2.STOPPING
        return status

    def decide_strategy(self, mode: UpdateMode | None) -> LogEvent:
        """Show from now on which strategy the model has decided on.

        Returns:
            The event that says it.
        """
        decided, event = name_strategy(mode)
        self._settings = {**self._settings, **decided}
        return event

    def final_status(self, end: JobEnd, failure: Failure | None) -> job_pb2.JobStatus:
        """Return what ``seal`` takes, once it is on the disk.

        Args:
            end: how the job ended.
            failure: of the master itself, perhaps after the job had its result: the result is then
                incomplete.
        """
        status = self._status(rfc3339(time.time()))
        status.state = phase_to(end.phase)
        if failure is not None and status.state != job_pb2.FAILED:
            status.state = job_pb2.FAILED
            status.error.CopyFrom(error_to(failure))
        return status

    def seal(self, status: job_pb2.JobStatus) -> None:
        """Show the final status from now on."""
        self._final = status

    def events(self, after: int, limit: int) -> Sequence[job_pb2.Event]:
        """Return the events with numbers above ``after``, oldest first."""
        return self._history.event_log.after(after, limit)

    def times(self) -> JobTimes:
        """Return where the time of the workers went."""
        return self._history.timeline.times()

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return self._registry.text()

    def is_ready(self) -> bool:
        """Return whether all parameter servers serve; a job that is over needs none."""
        return self.is_sealed or all(each.state == "serving" for each in self._servers())

    def _status(self, finished_at: str = "") -> job_pb2.JobStatus:
        context = StatusContext(
            name=self._facts.spec.name,
            started_at=self.started_at,
            finished_at=finished_at,
            dashboard_url=self._dashboard_url(),
            output=self._facts.output,
            incarnation=self._facts.incarnation,
            curves=self._history.curves.all(),
            files=self._facts.files,
            table_rows=self._table_rows(),
            gpus=self._facts.gpus,
        )
        status = status_to(self._view(), context)
        status.master_restarts = self._history.restarts
        status.servers.extend(self._servers())
        status.settings.update(self._settings)
        status.environment.update(self._environment)
        status.worker_environment.update(self.worker_environments.summary())
        return status
