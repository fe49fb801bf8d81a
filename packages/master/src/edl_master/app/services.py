"""Stage 2 of the composition: the services of a master, built on its state.

Only the listeners run after this stage: their callers wait for the lock of the job
until stage 3 starts the clock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.http import StatusServer
from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.page_access import PageAccess
from edl_master.adapters.profiles import ProfileFiles
from edl_master.adapters.tcp_ports import is_free
from edl_master.adapters.timeline_file import TimelineFile
from edl_master.app.collectors import build_collectors
from edl_master.app.host_environment import HostEnvironment, reachable, stale_master
from edl_master.app.state import MasterState
from edl_master.config.job_config import Config
from edl_master.config.optimizer_plugins import find_installed_rule
from edl_master.control.effect_executor import EffectExecutor, EffectTargets, failure_from_exception
from edl_master.control.executors import run_in_background
from edl_master.control.job_controller import JobController
from edl_master.control.stream_follower import StreamFollower
from edl_master.core.events import Event, MasterFailed
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskType
from edl_master.core.parameters import quantization
from edl_master.core.platform import Platform
from edl_master.core.settings import JobType
from edl_master.metrics.instruments import Metrics
from edl_master.metrics.processes import WorkerCounters
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.job_model import JobModel
from edl_master.parameters.plane import LocalParts, build_local
from edl_master.recovery.requests import RecordedRequests
from edl_master.reporting.curves import Curves
from edl_master.reporting.job_report import JobFacts, JobHistory, JobReport
from edl_master.reporting.job_spans import JobSpans
from edl_master.reporting.report_writer import ReportWriter
from edl_master.reporting.status_codec import curves_from
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_master.server import Server, Services
from edl_master.server_group.processes import ParameterServers
from edl_master.server_group.remote_stores import RemoteStores
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.job import JobServicer
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.push_report import PushReporter
from edl_master.servicers.replicas import ReplicasServicer
from edl_master.servicers.servers import ServersServicer
from edl_master.servicers.tasks import JobParameters, TaskFiles, TasksServicer, WorkerRecords
from edl_proto.errors import EdlError
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport.parameters import COORDINATOR, PARAMETERS
from edl_proto.transport.raw_calls import RawService
from edl_spans.export import SpanExport


class MasterServices:
    """Everything that serves one job.

    Args:
        config: of the job.
        directory: of the job.
        host_environment: where the master runs.
        state: what stage 1 opened.
        opened: closes what this stage opens.

    Raises:
        EdlError: a port is not free, or the platform cannot be used.
    """

    def __init__(
        self,
        config: Config,
        directory: JobDirectory,
        host_environment: HostEnvironment,
        state: MasterState,
        opened: ExitStack,
    ) -> None:
        self._config = config
        self._directory = directory
        self._host_environment = host_environment
        self._incarnation = host_environment.incarnation
        self._state = state
        self.failure: Failure | None = None
        """The first failure of the master itself."""
        self.suspended = False
        """The master ends but the job continues: later errors only follow from that."""
        self.acknowledged = threading.Event()
        """Set when a client has read the final status."""
        self._trains = config.type is JobType.TRAIN
        self.identities = host_environment.identities or config.identities
        """Those of the job; None if it is not secured."""
        self.metrics = Metrics()
        self.worker_counters = WorkerCounters()
        self.span_export = SpanExport("edl-master", {"edl.incarnation": self._incarnation})
        opened.callback(self.span_export.close)
        self.spans = JobSpans(self.span_export, config.spec.name, config.spec.submitted_at)
        self.timeline = TimelineRecorder(
            TimelineFile(directory.path), on_spans=self.spans.record_tasks
        )
        self.buffers = BufferPool()
        self.requests = RecordedRequests(directory)
        self.servers = self._build_parameter_servers(opened)
        self.platform: Platform = host_environment.platform_factory(config, lambda: self.address)
        opened.callback(self.platform.close, 0)
        curves = self._build_curves()
        self.report_writer = ReportWriter(
            directory,
            state.event_log,
            self.timeline,
            config.tensorboard_dir,
            config.intervals.status_every_s,
            config.intervals.flush_every_s,
            self.fail,
        )
        self.effects = self._build_effects(curves)
        self.effects.find_last_checkpoint()
        self._local: LocalParts | None = None
        self.plane, self._model = self._build_plane(opened)
        self.controller = JobController(
            state.restored.job,
            self.plane,
            self.effects,
            state.settings.timings.crowded_retry_s,
        )
        self.stream: StreamFollower | None = None
        if state.data.stream is not None and not config.spec.export.job:
            self.stream = StreamFollower(
                state.data.stream,
                state.splits,
                self.controller,
                lambda note: self.effects.record(note, self.controller.seconds),
            )
        for note in (*state.restored.notes, *state.data.compared.notes):
            self.effects.record(note, self.controller.seconds)
        self.report = self._build_report(curves)
        # Before a client can ask for a status, which names the page.
        access = PageAccess.of_job(
            directory.path, config.spec.name, open_metrics=config.open_metrics
        )
        self._page = self._open_page(access)
        self._metrics_token = access.metrics_token
        opened.callback(self._page.close)
        self._server = Server(
            self._build_servicers(),
            config.host,
            config.spec.serving.port or self._former_port(),
            config.parameter_servers,
            self.metrics.internal_errors.inc,
            host_environment.stream_port,
            self._build_access_control(),
        )
        opened.callback(self._server.close, 0)
        if self.servers is not None:
            host = host_environment.server_host or reachable(config.host, bare=True)
            self.servers.start(self.address, host)

    # --- callbacks -------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Pass an event to the job."""
        self.spans.record_event(event)
        self.controller.handle(event)

    def fail(self, error: Exception) -> None:
        """Fail the job for an error of the master itself, even if the job is all but over."""
        if self.suspended:
            return
        failure = failure_from_exception(error)
        self.failure = self.failure or failure
        self.handle(MasterFailed(failure))

    def _acknowledge(self) -> None:
        if self.report.is_sealed:
            self.acknowledged.set()

    # --- addresses -------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where workers and clients reach the master."""
        return f"{self._reachable_host}:{self._server.port}"

    @property
    def dashboard_url(self) -> str:
        """The job's page."""
        return f"http://{self._reachable_host}:{self._page.port}/"

    @property
    def _reachable_host(self) -> str:
        return self._host_environment.host or reachable(self._config.host)

    def _former_port(self) -> int:
        """Return the port at which workers expect a restarted master; 0 for any."""
        if not self._state.keeps_workers:
            return 0
        port = self._directory.former_port()
        return port if is_free(self._config.host, port) else 0

    # --- parts -----------------------------------------------------------------------------

    def _open_page(self, access: PageAccess) -> StatusServer:
        host, wanted = self._config.host, self._config.spec.serving.dashboard_port
        if not wanted and (port := self._directory.former_port("dashboard_url")):
            # Open browsers, and links that were not clicked yet, have the former master's port.
            with contextlib.suppress(EdlError):
                return StatusServer(host, port, self.report, access)
        return StatusServer(host, wanted, self.report, access)

    def _build_access_control(self) -> AccessControl | None:
        if self.identities is None:
            return None
        self.identities.renew()  # those of an earlier version of edl
        return AccessControl(Credentials(self.identities.provide(Role.MASTER)))

    def _build_parameter_servers(self, opened: ExitStack) -> ParameterServers | None:
        if not self._config.parameter_servers:
            return None
        restored = self._state.restored
        servers = ParameterServers(
            self._config,
            self._incarnation,
            restored.version,
            restored.path,
            self._host_environment.launch_servers,
        )
        opened.callback(servers.close)
        return servers

    def _build_curves(self) -> Curves:
        curves = Curves()
        version = self._state.restored.version
        if version is not None:
            for name, points in curves_from(self._directory.read_status()).items():
                curves.restore(name, points, version)
        return curves

    def _build_effects(self, curves: Curves) -> EffectExecutor:
        storage = self._state.storage
        targets = EffectTargets(
            platform=self.platform,
            event_log=self._state.event_log,
            curves=curves,
            report_writer=self.report_writer,
            metrics=self.metrics,
            checkpoints=storage.checkpoints,
            snapshots=storage.snapshots,
            flush_output=storage.flush_output,
            finish_output=self._finish_output,
            group=self.servers.group if self.servers else None,
            on_log_event=self.spans.record_log,
            data=self._state.data.main.describe(),
            note_snapshot=lambda split: self.stream.note_snapshot(split) if self.stream else None,
        )
        return EffectExecutor(targets, self.handle, self.fail, self._config.worker_grace_s)

    def _finish_output(self) -> None:
        if not self._host_environment.confirm():
            raise stale_master(self._config.spec.name)
        counts = self.controller.view().tasks.get(TaskType.PREDICTION)
        self._state.storage.finish_output(counts.dead if counts else 0)

    def _build_plane(self, opened: ExitStack) -> tuple[Coordinator, JobModel]:
        config, saved = self._config, self._state.restored.saved

        def compile_kernels() -> None:
            run_in_background("compile", self._compile, self.fail)
            if config.model_decides:
                decided = self.report.decide_strategy(self.plane.mode)
                self.effects.record(decided, self.controller.seconds)

        job = config.update_mode, config.reduction
        if self.servers is not None:
            stores = RemoteStores(self.servers.group)
            coordinator = Coordinator(stores)
            model = JobModel(coordinator, stores, *job, saved, compile_kernels, find_installed_rule)
            return coordinator, model
        threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="plane")
        opened.callback(threads.shutdown, wait=False, cancel_futures=True)
        self._local = build_local(
            self.buffers,
            *job,
            threads,
            saved,
            compile_kernels,
            on_failed=self.fail,
            find_rule=find_installed_rule,
        )
        return self._local.coordinator, self._local.model

    def _compile(self) -> None:
        """Compile the kernels that the job will use, before the first push needs them."""
        precision = self._config.spec.training.wire_precision
        quantization.warm_up(codec.precision_from(precision))
        self._model.warm_up()

    def _build_report(self, curves: Curves) -> JobReport:
        config, state = self._config, self._state
        facts = JobFacts(
            config.spec, config.output, self._incarnation, state.data.files, config.gpus
        )
        for collector in build_collectors(
            facts,
            self.controller,
            self.plane,
            self.worker_counters,
            self.servers,
            self.span_export,
            self._host_environment.api_requests,
        ):
            self.metrics.add(collector)
        return JobReport(
            facts,
            self.controller.view,
            JobHistory(state.event_log, curves, self.timeline, state.started_at, state.restarts),
            self.metrics,
            lambda: self.dashboard_url,
            self.servers.status if self.servers else list,
            lambda: self.plane.tables().rows,
        )

    def _build_servicers(self) -> Services:
        group = self.servers.group if self.servers else None
        state, compared = self._state, self._state.data.compared
        tasks = TasksServicer(
            self.controller,
            JobParameters(self.plane, self._model, group) if self._trains else None,
            TaskFiles(
                state.data.locate,
                state.storage.output,
                compared.columns,
                compared.content,
                state.data.sample,
            ),
            WorkerRecords(
                self.worker_counters,
                self.timeline,
                self.report.worker_environments,
                ProfileFiles(self._config.tensorboard_dir, self._config.spec.name)
                if self._config.spec.training.HasField("profile")
                else None,
                lambda event: self.effects.record(event, self.controller.seconds),
            ),
            self._config.spec,
            self._incarnation,
            self._state.settings.timings.heartbeat_every_s,
            self._metrics_token,
        )
        job = JobServicer(
            self.controller,
            self._state.event_log,
            self.report.status,
            self._acknowledge,
            self.requests,
            self.timeline,
            lambda: self.plane.schedules,
            self._config.gpus,
        )
        servers = replicas = None
        if self.servers is not None:
            servers = ServersServicer(
                self.servers.group, self._incarnation, self.servers.mark_lost, self.fail
            )
        parameters = self._build_parameters(servers) if self._trains else None
        if self._trains and self._config.may_replicate:
            replicas = ReplicasServicer(
                self.controller, self.plane, self.metrics, self._incarnation
            )
        return Services(tasks, job, parameters, servers, replicas)

    def _build_parameters(
        self, servers: ServersServicer | None
    ) -> tuple[RawService, ParametersServicer | CoordinatorServicer]:
        reporter = PushReporter(self.controller, self.metrics)
        if self._local is None:
            assert servers is not None, "the values are somewhere"
            return COORDINATOR, CoordinatorServicer(
                self.plane, reporter, self.metrics, self._incarnation, servers.follow
            )
        return PARAMETERS, ParametersServicer(
            self._local.plane,
            self._local.shard,
            PayloadTransfer(self.buffers, self.metrics),
            reporter,
            self._incarnation,
        )
