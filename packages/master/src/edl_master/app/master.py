"""The composition root: the only place where a master's concrete parts meet.

Owns the threads and the clock. A master is made, which opens everything; runs until its job has
ended; and is closed. Whatever happens in between, no instance outlives it.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Self

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.checkpoints import CheckpointStorage, LocalCheckpoints
from edl_master.adapters.data import open_data
from edl_master.adapters.exports import ExportOutput
from edl_master.adapters.http import StatusServer
from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.journal import Journal
from edl_master.adapters.outputs import JobOutput, PredictionOutput, check_output
from edl_master.adapters.stored_checkpoints import ObjectStoreCheckpoints
from edl_master.adapters.tcp_ports import is_free
from edl_master.config.job_config import Config
from edl_master.control.effect_executor import EffectExecutor, failure_from_exception
from edl_master.control.job_controller import End, JobController
from edl_master.control.worker_instances import PlatformFactory, adopt_instances, exit_reason
from edl_master.core.effects import LeaseGranted, LogEvent, Severity
from edl_master.core.events import (
    Event,
    InstanceExited,
    InstanceFound,
    MasterFailed,
    Tick,
)
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskType
from edl_master.core.parameters import quantization
from edl_master.core.parameters.arithmetic import kernel
from edl_master.core.platform import InstanceStarted
from edl_master.core.settings import JobType
from edl_master.core.tasks import TaskPartition
from edl_master.guarded_plane import GuardedPlane
from edl_master.metrics import (
    JobCollector,
    Metrics,
    ServersCollector,
    TableCollector,
    WorkerCounters,
)
from edl_master.parameter_servers.processes import ParameterServers
from edl_master.recovery import restore
from edl_master.recovery.requests import RecordedRequests
from edl_master.recovery.restart import RESTART, SUSPENDED
from edl_master.reporting.curves import Curves
from edl_master.reporting.job_report import JobReport
from edl_master.reporting.report_writer import ReportWriter
from edl_master.server import Server, Services
from edl_master.servicers.job import JobServicer
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.servers import ServersServicer
from edl_master.servicers.tasks import TaskFiles, TasksServicer
from edl_proto.errors import EdlError
from edl_proto.local import job_directory, process_identity
from edl_proto.v1 import job_pb2, task_pb2

log = logging.getLogger(__name__)

_SNAPSHOTS_KEPT = 2
"""One to use, and one if that is damaged."""

_LOOK_S = 0.2
"""How soon a lost parameter server is seen, and a job that has ended without being told."""

_LONGEST_S = 600.0
"""How long the last checkpoint may take to be written."""


class App:
    """One master at work on one job.

    Args:
        config: what to do.
        directory: of the job, held by this process.
        platform_factory: where instances come from.

    Raises:
        EdlError: the job cannot be started; everything that was opened is closed again.
    """

    def __init__(
        self,
        config: Config,
        directory: JobDirectory,
        platform_factory: PlatformFactory,
    ) -> None:
        self._config = config
        self._directory = directory
        self._training = config.type is JobType.TRAIN
        self._incarnation = secrets.token_hex(4)
        self._failure: Failure | None = None
        self._ending = False
        self._snapshots: LocalCheckpoints | None = None
        self._acknowledged = threading.Event()
        self._leave = threading.Event()
        self._over = threading.Event()
        self._signals: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        self.received_signal: signal.Signals | None = None
        self._recorded = RecordedRequests(directory)
        with ExitStack() as opened:
            self._open(opened, platform_factory)
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack, platform_factory: PlatformFactory) -> None:
        config, spec, intervals = self._config, self._config.spec, self._config.intervals
        died_at = self._directory.last_seen()
        self._directory.reserve()
        self._journal = Journal(config.job_dir / job_directory.EVENTS)
        self._find_data()
        settings = config.job_settings(self._data.records)
        checkpoints, snapshots = self._prepare_places(settings.records_per_task)
        for place in (checkpoints, snapshots):
            if place is not None:
                opened.callback(place.close)
        stored = checkpoints if config.checkpoint_store else None
        beginning = restore.begin(
            settings,
            self._data,
            self._validation,
            [snapshots, *([checkpoints] if checkpoints and not stored else ())],
            self._predictions,
            store=stored,
            chosen_length=not spec.records_per_task,
            died_at=died_at,
        )
        # One that begins to train anew needs workers that have not trained yet.
        self._keeps_workers = beginning.resumed or not self._training
        self._servers: ParameterServers | None = None
        if config.parameter_servers:
            self._servers = ParameterServers(
                config, self._incarnation, beginning.version, beginning.path
            )
            opened.callback(self._servers.close)
        crew = self._servers.crew if self._servers else None

        self._metrics = Metrics()
        self._counters = WorkerCounters()
        self._curves = Curves()
        if beginning.version is not None:
            for name, points in codec.curves_from(self._directory.read_status()).items():
                self._curves.restore(name, points, beginning.version)
        self._report_writer = ReportWriter(
            self._directory,
            self._journal,
            config.tensorboard_dir,
            intervals.status_every_s,
            intervals.flush_every_s,
            self._fail,
        )
        self._platform = platform_factory(config, lambda: self.address)
        opened.callback(self._platform.close, 0)
        self._works = EffectExecutor(
            platform=self._platform,
            journal=self._journal,
            curves=self._curves,
            report_writer=self._report_writer,
            checkpoints=checkpoints,
            snapshots=snapshots,
            settle_output=self._settle,
            finish_output=self._make_output,
            metrics=self._metrics,
            tell=self._tell,
            on_error=self._fail,
            grace_s=config.worker_grace_s,
            crew=crew,
        )
        self._buffers = BufferPool()
        threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="plane")
        opened.callback(threads.shutdown, wait=False, cancel_futures=True)
        self._plane = GuardedPlane(
            config.update_mode,
            config.reduction,
            self._buffers,
            threads,
            beginning.saved,
            on_made=lambda: self._beside(self._warm_up),
            servers=crew,
        )
        self._controller = JobController(beginning.job, self._plane, self._works)
        for note in beginning.notes:
            self._works.record(note, self._controller.seconds)
        self.report = JobReport(
            spec.name,
            config.output,
            self._incarnation,
            self._controller,
            self._journal,
            self._curves,
            self._metrics,
            self._data.uris,
            lambda: self.dashboard_url,
            self._servers.status if self._servers else list,
            self._plane.table_rows,
        )
        self._metrics.add(JobCollector(spec.name, self._incarnation, self._controller.view))
        self._metrics.add(TableCollector(self._plane.status))
        self._metrics.add(self._counters)
        if self._servers is not None:
            self._metrics.add(ServersCollector(self._servers.status))

        serving = spec.serving
        # Before anybody can ask for a status, which names the page.
        self._page = StatusServer(config.host, serving.dashboard_port, self.report)
        opened.callback(self._page.close)
        self._server = Server(
            self._services(settings.timings.heartbeat_every_s),
            config.host,
            serving.port or self._former_port(),
            config.workers_max,
            self._metrics.defects.inc,
        )
        opened.callback(self._server.close, 0)
        if self._servers is not None:
            self._servers.start(self.address, _reachable(config.host, bare=True))

    def _find_data(self) -> None:
        spec = self._config.spec
        self._data = open_data(spec.data, spec.data_format, "--data")
        self._validation = None
        if self._training and spec.validation_data:
            option = "--validation-data"
            self._validation = open_data(spec.validation_data, spec.data_format, option)

    def _prepare_places(
        self, records_per_task: int
    ) -> tuple[CheckpointStorage | None, LocalCheckpoints]:
        """Make sure, before any work, that results can be written; and where state is kept."""
        config = self._config
        self._predictions: PredictionOutput | None = None
        self._results: JobOutput | None = None
        if config.type is JobType.PREDICT:
            cut = TaskPartition(self._data.counts, records_per_task)
            parts = config.job_dir / job_directory.PARTS
            self._predictions = PredictionOutput(
                parts, config.output, self._data.uris, cut, self._incarnation
            )
            self._results = self._predictions
        elif self._training and config.output:
            self._results = ExportOutput(config.output, config.spec.name, self._incarnation)
        ours = self._predictions is not None and self._predictions.is_begun
        if config.output and config.type is not JobType.EVALUATE and not ours:
            again = self._directory.former_port() > 0
            check_output(config.output, resumed_job=config.spec.name if again else "")
        name = config.spec.name
        snapshots = LocalCheckpoints(
            config.job_dir / job_directory.SNAPSHOTS, name, _SNAPSHOTS_KEPT
        )
        snapshots.prepare()
        self._snapshots = snapshots
        if config.checkpoint_dir is None or not self._training:
            return None, snapshots
        if config.checkpoint_store:
            stored = ObjectStoreCheckpoints(
                config.checkpoint_store, name, config.keep_checkpoints, config.checkpoint_dir
            )
            stored.prepare(now=not snapshots.names())
            return stored, snapshots
        checkpoints = LocalCheckpoints(config.checkpoint_dir, name, config.keep_checkpoints)
        checkpoints.prepare()
        return checkpoints, snapshots

    def _services(self, heartbeat_every_s: float) -> Services:
        tasks = TasksServicer(
            self._controller,
            self._plane if self._training else None,
            TaskFiles(self._locate, self._results),
            self._counters,
            self._config.spec,
            self._incarnation,
            heartbeat_every_s,
            self._servers.crew if self._servers else None,
        )
        job = JobServicer(
            self._controller, self._journal, self.report.status, self._acknowledge, self._recorded
        )
        parameters = None
        if self._training:
            parameters = ParametersServicer(
                self._controller, self._plane, self._buffers, self._metrics, self._incarnation
            )
        servers = None
        if self._servers is not None:
            servers = ServersServicer(
                self._servers.crew, self._incarnation, self._servers.lose, self._fail
            )
        return Services(tasks, job, parameters, servers)

    # --- where it is, and what it looks like -----------------------------------------------

    @property
    def address(self) -> str:
        """Where workers and clients of this machine reach this master."""
        return f"{_reachable(self._config.host)}:{self._server.port}"

    @property
    def dashboard_url(self) -> str:
        """The status page."""
        return f"http://{_reachable(self._config.host)}:{self._page.port}/"

    def _former_port(self) -> int:
        """The port at which workers expect a master that was started again; 0 for any."""
        if not self._keeps_workers:
            return 0
        port = self._directory.former_port()
        return port if is_free(self._config.host, port) else 0

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
            signal.signal(number, self._on_signal)

    def run(self) -> int:
        """Work on the job until it has ended.

        Returns:
            The exit code of the process, ``RESTART``, or ``SUSPENDED``.
        """
        intervals = self._config.intervals
        self._directory.write_master(
            {
                "address": self.address,
                "pid": os.getpid(),
                "start_time": process_identity.start_time(os.getpid()) or 0,
                "dashboard_url": self.dashboard_url,
                "incarnation": self._incarnation,
                "started_at": self.report.started_at,
            }
        )
        for instance in adopt_instances(self._platform, keep=self._keeps_workers):
            self._tell(InstanceFound(instance.worker, instance.instance, instance.attempt))
        for act in (self._tick, self._observe, self._handle_signals):
            self._beside(act)
        self._report_writer.start(self.report.status)
        if self._training:
            # Importing the compiler takes about a second: done while the workers import theirs.
            self._beside(lambda: kernel("accumulate"))
        while (end := self._controller.wait_for_end(_LOOK_S)) is None:
            lost = self._servers.look() if self._servers else ""
            if self._servers is not None and lost and self._roll_back(self._servers, lost):
                return RESTART
            if self.received_signal is not None:
                self._suspend(self.received_signal)
                return SUSPENDED
        status = self._finish(end)
        # The client has seen the end, or will look at status.json.
        self._acknowledged.wait(intervals.acknowledge_s)
        self._leave.wait(self._config.spec.serving.keep_page_s)
        return 0 if status.state == job_pb2.SUCCEEDED else 1

    def _roll_back(self, servers: ParameterServers, lost: str) -> bool:
        """Prepare a restart from the last snapshot; False if the job fails instead."""
        self._ending = True  # errors from here on only mean that the servers are gone
        try:
            servers.prepare_rollback()
        except EdlError as error:
            self._ending = False
            self._fail(error)
            return False
        line = f"{lost}; the job goes on from the last snapshot."
        self._works.record(
            LogEvent("ParameterServerLost", line, Severity.WARNING), self._controller.seconds
        )
        self._journal.flush()
        return True

    def _suspend(self, received: signal.Signals) -> None:
        """Keep the state as it is on the disk; workers wait for the next master."""
        self._ending = True  # an error from here on does not end the job
        line = f"The master received {received.name} and ends; the job's state is kept."
        self._works.record(
            LogEvent("MasterSuspended", line, Severity.WARNING), self._controller.seconds
        )
        self._journal.flush()

    def close(self) -> None:
        """Close everything; no instance is left after this."""
        self._over.set()
        self._signals.put(None)
        self._plane.let_go()
        self._opened.close()

    def _finish(self, end: End) -> job_pb2.JobStatus:
        """Bring everything to disk, and say how the job ended."""
        self._works.close(_LONGEST_S)
        self._platform.close(self._config.intervals.workers_leave_s)
        if self._servers is not None:
            self._servers.close()
        self._over.set()
        try:
            self._report_writer.stop()
        except Exception as error:
            self._fail(error)
        status = self.report.seal(end, self._failure)
        try:
            self._directory.write_status(status, final=True)
            self._forget(status.state == job_pb2.SUCCEEDED)
            self._journal.flush()  # what a full disk did not take, before that gave some space
        except Exception:
            log.exception("the final status cannot be written")
        log.info("the job ended: %s", job_pb2.JobState.Name(status.state))
        return status

    def _forget(self, succeeded: bool) -> None:
        """Remove what nobody needs any more; who has the result will not go on from here."""
        if succeeded and self._snapshots is not None:
            self._snapshots.clear()
        if self._results is not None:
            self._results.clear(succeeded)

    # --- threads ---------------------------------------------------------------------------

    def _warm_up(self) -> None:
        quantization.warm_up(codec.precision_from(self._config.spec.training.wire_precision))
        self._plane.warm_up()

    def _tick(self) -> None:
        self._tell(Tick())
        restored = self._controller.view()
        for request in self._recorded.events(restored.min_workers, restored.max_workers):
            self._tell(request)
        while not self._over.wait(self._config.intervals.tick_s):
            self._tell(Tick())
            self._buffers.trim(time.monotonic())

    def _observe(self) -> None:
        while not self._over.is_set():
            for seen in self._platform.observe(1.0):
                match seen:
                    case InstanceStarted(worker, _, instance):
                        log.info("worker %d is %s", worker, instance)
                    case InstanceExited():
                        self._counters.forget(seen.instance or "")
                        self._metrics.exits.labels(exit_reason(seen)).inc()
                        self._tell(seen)
                    case _:
                        self._tell(seen)

    def _handle_signals(self) -> None:
        while (received := self._signals.get()) is not None:  # ``close`` puts None
            self._leave.set()
            if self.received_signal is not None:
                self._works.stop_now()  # the job has ended, and its last files are being written
            self.received_signal = received

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A handler runs between any two steps of the main thread, which may hold a lock.
        self._signals.put(signal.Signals(number))

    def _acknowledge(self) -> None:
        if self.report.is_sealed:
            self._acknowledged.set()

    def _beside(self, act: Callable[[], object]) -> None:
        """Do something in a thread of its own; a job whose thread has failed must not go on."""

        def guarded() -> None:
            try:
                act()
            except Exception as error:
                self._fail(error)

        name = getattr(act, "__name__", "beside").strip("_")
        threading.Thread(target=guarded, name=name, daemon=True).start()

    # --- wires -----------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._controller.tell(event)

    def _fail(self, error: Exception) -> None:
        """Something of the master's own failed: the job fails, even if it is all but over."""
        if self._ending:
            return
        failure = failure_from_exception(error)
        self._failure = self._failure or failure
        self._tell(MasterFailed(failure))

    def _locate(self, lease: LeaseGranted) -> task_pb2.RecordRange | None:
        if lease.records is None:
            return None
        evaluates = lease.task.type is TaskType.EVALUATION and self._validation is not None
        data = self._validation if evaluates else self._data
        assert data is not None
        return data.locate(lease.records)

    def _settle(self) -> None:
        if self._results is not None:
            self._results.settle()

    def _make_output(self) -> None:
        assert self._results is not None, "only a job with results has an output"
        counts = self._controller.view().tasks.get(TaskType.PREDICTION)
        self._results.finish(counts.dead if counts else 0)


def _reachable(host: str, *, bare: bool = False) -> str:
    """The address that a listener on ``host`` has for programs of the same machine."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{local}]" if ":" in local and not bare else local
