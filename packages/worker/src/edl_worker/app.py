"""The composition root: the only place where a worker's parts meet; owns threads and signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from edl_proto.errors import EdlError
from edl_proto.local import process_identity
from edl_proto.v1 import error_pb2, job_pb2, task_pb2
from edl_worker import config
from edl_worker.concurrency.shared_state import Departure, LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.core import exit_codes
from edl_worker.metrics import WorkerMetrics
from edl_worker.runtime.heartbeat import Heartbeat
from edl_worker.runtime.session import Session
from edl_worker.runtime.supervisor_watch import SupervisorWatch
from edl_worker.runtime.tensorflow_import import import_tensorflow
from edl_worker.transport.master_client import MasterClient, WorkerIdentity

if TYPE_CHECKING:
    from edl_worker.tasks.task_runner import TaskRunner

log = logging.getLogger(__name__)

_LOOK_S = 0.1  # how soon the main thread sees what a signal or the session has done


class App:
    """One worker process.

    The session runs in a thread of its own, so that the main thread is always free: it takes
    signals at once and ends the process in time, even while user code never returns.
    """

    def __init__(self, settings: Settings, started: float | None = None) -> None:
        config.quiet_tensorflow()
        self._settings = settings
        self._state = SharedState()
        self._metrics = WorkerMetrics()
        self._identity = identity(settings.worker_id)
        self._client = MasterClient(settings, self._identity, self._state)
        self._heartbeat = Heartbeat(
            self._client,
            self._state,
            self._metrics.counters,
            settings.master_wait_s,
        )
        self._session = Session(
            settings=settings,
            client=self._client,
            state=self._state,
            metrics=self._metrics,
            heartbeat=self._heartbeat,
            load=self._load,
            metrics_port=self._serve_metrics(),
            started=time.monotonic() if started is None else started,
        )
        self._importing = threading.Thread(target=_import_model_code, name="import", daemon=True)
        self._ended = threading.Event()
        self._exit_code = exit_codes.INTERNAL_ERROR
        self._asked_at: float | None = None
        self._signalled = False

    def run(self) -> int:
        """Work until the job is over for this worker; return the exit code.

        Threads may still be running: the process is to be ended by ``os._exit``.
        """
        # While the master is being asked what the job is, the slow import is under way.
        self._importing.start()
        if self._settings.job_dir:
            watch = SupervisorWatch(
                Path(self._settings.job_dir), self._settings.worker_id, self._state
            )
            watch.start()
        threading.Thread(target=self._live, name="session", daemon=True).start()
        while not self._ended.wait(_LOOK_S):
            departure = self._state.departure
            if departure is None:
                continue
            now = time.monotonic()
            if self._asked_at is None:
                self._asked_at = now
            late = now - self._asked_at > self._patience_s
            if late:
                log.warning("the work at hand does not end in time: leaving without it")
            # While it loads a worker holds nothing, and imports cannot be interrupted.
            if late or self._state.phase == task_pb2.LOADING:
                return self._leave(departure)
        return self._exit_code

    def take_signals(self) -> None:
        """Handle SIGTERM and SIGINT from now on; for the main thread of a process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def leave(self, reason: str) -> None:
        """Ask the worker to leave, as SIGTERM does."""
        self._state.leave(Departure(reason))

    @property
    def registrations(self) -> int:
        """With how many incarnations of the master this worker has registered."""
        return self._session.registrations

    # --- inside ----------------------------------------------------------------------------

    @property
    def _patience_s(self) -> float:
        """How long the work at hand may go on after the worker was asked to leave."""
        return max(0.5, self._session.grace_s - self._settings.grace_margin_s) - min(
            self._settings.farewell_s, self._session.grace_s / 4
        )

    def _serve_metrics(self) -> int:
        host, port = self._settings.metrics_host, self._settings.metrics_port
        try:
            return self._metrics.serve(host, port)
        except OSError as error:
            if not port:
                raise
            # Several workers of one machine have the same environment.
            log.warning("metrics are served on another port than %d: %s", port, error)
            return self._metrics.serve(host, 0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + number)
        self._signalled = True
        self._state.leave(Departure("preempted", signal=number))

    def _live(self) -> None:
        try:
            self._exit_code = self._outcome()
        except BaseException:  # nothing may keep the process alive
            traceback.print_exc()
        finally:
            self._heartbeat.stop()
            self._ended.set()

    def _outcome(self) -> int:
        """Live the session to its end, say farewell or report why not; the exit code."""
        try:
            self._session.run()
        except LeavingError:
            departure = self._state.departure
            assert departure is not None
            return self._leave(departure)
        except EdlError as error:
            log.error("%s", error)
            self._session.report_own_failure(error, permanent=error.code != error_pb2.INTERNAL)
            return exit_codes.FAILED
        except BaseException as error:
            log.exception("the worker failed")
            defect = EdlError(
                error_pb2.INTERNAL,
                f"worker {self._settings.worker_id} failed: {type(error).__name__}: {error}",
                where=f"worker {self._settings.worker_id} on {self._identity.host}",
                remedy="This is an internal error of edl, or user code that ends its process; "
                "the detail and the worker's log have the traceback.",
                detail=traceback.format_exc()[-8000:],
            )
            self._session.report_own_failure(defect, permanent=False)
            return exit_codes.INTERNAL_ERROR
        raise AssertionError("a session ends by an exception")

    def _leave(self, departure: Departure) -> int:
        heard = self._session.farewell()
        if departure.error is not None:
            log.error("%s", departure.error)
        if departure.signal is not None and not heard:
            # Who sees this process end must not take it for one that ended on its own account.
            return 128 + departure.signal
        return departure.exit_code

    def _load(self, job: job_pb2.JobSpec) -> TaskRunner:
        # Two threads in one package of such size end in a deadlock. The worker has registered: how
        # long it loads, the master looks at, and asks for its stacks.
        self._importing.join()
        from edl_worker.tasks import loaded_model
        from edl_worker.tasks.task_runner import TaskRunner

        log.debug("%.2f s: TensorFlow imported", time.monotonic() - self._session.started)
        context = {
            "job": job.name,
            "worker_id": self._settings.worker_id,
            "master": self._settings.master,
        }
        model = loaded_model.load(job, context)
        return TaskRunner(model, self._client, self._state, self._metrics, self._settings)


def identity(worker_id: int) -> WorkerIdentity:
    """Who this process is; the platform uses the same name of the instance."""
    host, pid = socket.gethostname(), os.getpid()
    if instance := os.environ.get("EDL_INSTANCE"):  # a container's
        return WorkerIdentity(worker_id, instance, host, pid)
    started = process_identity.start_time(pid) or time.time_ns()  # the latter without /proc
    return WorkerIdentity(worker_id, process_identity.instance_name(pid, started), host, pid)


def _import_model_code() -> None:
    try:
        import_tensorflow()
        import edl_worker.tasks.task_runner  # noqa: F401
    except BaseException:
        # The session imports the same and tells what is wrong.
        log.debug("importing TensorFlow failed", exc_info=True)
