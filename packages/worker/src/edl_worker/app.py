"""The composition root: the only place where concrete classes of the worker meet."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edl_worker.collectives.ring_members import Ring
from edl_worker.collectives.shared_memory import SharedMemory
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.config import Settings
from edl_worker.core.collectives import Collectives
from edl_worker.core.job import JobDescription
from edl_worker.core.replica_engine import ReplicaEngine
from edl_worker.core.step_engine import Framework
from edl_worker.core.tasks import WorkerPhase
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.metrics import WorkerMetrics
from edl_worker.metrics_server import MetricsServer
from edl_worker.runtime.heartbeat import Heartbeat
from edl_worker.runtime.identity import identity
from edl_worker.runtime.session import Session
from edl_worker.runtime.supervisor_monitor import SupervisorMonitor
from edl_worker.runtime.worker_process import WorkerProcess
from edl_worker.transport.master_connection import MasterConnection
from edl_worker.transport.parameter_client import ParameterClient
from edl_worker.transport.task_client import TaskClient

if TYPE_CHECKING:
    from edl_worker.tasks.task_runner import TaskRunner

log = logging.getLogger(__name__)


def build_worker(
    settings: Settings, started: float | None = None, framework: Framework | None = None
) -> WorkerProcess:
    """Build a worker; start to import its framework and to watch the job's supervisor.

    Args:
        settings: of this worker.
        started: ``time.monotonic()`` when the process began.
        framework: that models are written for; None: TensorFlow.
    """
    started = time.monotonic() if started is None else started
    state = SharedState()
    metrics = WorkerMetrics()
    connection = MasterConnection(settings, identity(settings.worker_id), state)
    client = TaskClient(connection)
    chosen = TensorFlow() if framework is None else framework
    loader = _Loader(settings, connection, client, state, metrics, started, chosen)
    heartbeat = Heartbeat(
        client,
        state,
        metrics.counters,
        settings.master_wait_s,
    )
    session = Session(
        settings=settings,
        client=client,
        state=state,
        metrics=metrics,
        heartbeat=heartbeat,
        load=loader.load,
        metrics_server=_serve_metrics(metrics, state, settings),
        started=started,
    )
    if settings.job_dir:
        SupervisorMonitor(Path(settings.job_dir), settings.worker_id, state).start()
    return WorkerProcess(settings, connection.identity, state, heartbeat, session)


class _Loader:
    """A loader that imports the framework in a thread while the worker registers.

    Two threads that import a package of such size can end in a deadlock, so ``load`` waits for
    the thread. The worker has registered by then, so the master limits the time.
    """

    def __init__(
        self,
        settings: Settings,
        connection: MasterConnection,
        client: TaskClient,
        state: SharedState,
        metrics: WorkerMetrics,
        started: float,
        framework: Framework,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._client = client
        self._state = state
        self._metrics = metrics
        self._started = started
        self._framework = framework
        self._import = threading.Thread(target=self._prepare, name="import", daemon=True)
        self._import.start()

    def load(self, job: JobDescription) -> TaskRunner:
        self._import.join()
        from edl_worker.tasks import loaded_model
        from edl_worker.tasks.task_runner import TaskRunner
        from edl_worker.tasks.trial_run import run_trial_at_start
        from edl_worker.training.replica_member import ReplicaMember
        from edl_worker.transport.replica_client import ReplicaClient

        log.debug("%.2f s: framework imported", time.monotonic() - self._started)
        settings = self._settings
        context = {"job": job.name, "worker_id": settings.worker_id, "master": settings.master}
        model = loaded_model.load(job, context, self._framework)
        if settings.worker_id == 0:  # one is enough, and its start is as long as that of others
            run_trial_at_start(model)
        parameters = ParameterClient(self._connection)
        profiler = None
        if job.training.profile is not None:
            profiler = self._framework.profiler(*job.training.profile, self._client.write_profile)

        def make_member(steps: ReplicaEngine, reduction: str) -> ReplicaMember:
            collectives = _build_collectives(settings, self._connection)
            replicas = ReplicaClient(self._connection, collectives.address)
            return ReplicaMember(steps, parameters, replicas, collectives, self._state, reduction)

        return TaskRunner(
            model, parameters, make_member, self._state, self._metrics, settings, profiler
        )

    def _prepare(self) -> None:
        try:
            self._framework.prepare()
            import edl_worker.tasks.task_runner  # noqa: F401  (takes its time here)
        except BaseException:
            # The session imports the same modules and reports what is wrong.
            log.debug("importing the framework failed", exc_info=True)


def _build_collectives(settings: Settings, connection: MasterConnection) -> Collectives:
    if settings.ring_host:
        host, port = settings.ring_host, settings.ring_port
        return Ring(settings.worker_id, host, port, connection.credentials)
    return SharedMemory(settings.worker_id, Path(settings.replica_dir))


def _serve_metrics(metrics: WorkerMetrics, state: SharedState, settings: Settings) -> MetricsServer:
    host, port = settings.metrics_host, settings.metrics_port

    def is_ready() -> bool:
        return state.phase is not WorkerPhase.LOADING and not state.leaving

    try:
        server = MetricsServer(metrics.registry, is_ready, host, port)
    except OSError as error:
        if not port:
            raise
        # Several workers of one machine have the same environment.
        log.warning("port %d cannot serve the metrics, so another port does: %s", port, error)
        server = MetricsServer(metrics.registry, is_ready, host, 0)
    log.info("metrics of this worker: %s port %d", host, server.port)
    return server
