"""The process of a worker: its main thread, signals and exit code."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
from types import FrameType

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.concurrency.shared_state import Departure, LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.core import exit_codes
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.tasks import WorkerPhase
from edl_worker.runtime.heartbeat import Heartbeat
from edl_worker.runtime.session import Session

log = logging.getLogger(__name__)

_POLL_S = 0.1  # how soon the main thread sees what a signal or the session has done


class WorkerProcess:
    """One worker process.

    The session runs in a thread of its own, so that the main thread is always free: it takes
    signals at once and ends the process in time, even while user code never returns.
    """

    def __init__(
        self,
        settings: Settings,
        identity: WorkerIdentity,
        state: SharedState,
        heartbeat: Heartbeat,
        session: Session,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._state = state
        self._heartbeat = heartbeat
        self._session = session
        self._ended = threading.Event()
        self._exit_code = exit_codes.INTERNAL_ERROR
        self._asked_at: float | None = None
        self._signalled = False

    def run(self) -> int:
        """Work until the job is over for this worker; return the exit code.

        Threads may still be running: end the process by ``os._exit``.
        """
        threading.Thread(target=self._run_session, name="session", daemon=True).start()
        while not self._ended.wait(_POLL_S):
            departure = self._state.departure
            if departure is None:
                continue
            now = time.monotonic()
            if self._asked_at is None:
                self._asked_at = now
            late = now - self._asked_at > self._finish_limit_s
            if late:
                log.warning("the current work has not ended in time: leaving without it")
            # While it loads the model a worker holds no lease, and imports cannot be interrupted.
            if late or self._state.phase == WorkerPhase.LOADING:
                return self._leave(departure, leaves_group=False)
        return self._exit_code

    def take_signals(self) -> None:
        """Handle SIGTERM and SIGINT from now on; for the main thread of a process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def leave(self, reason: str) -> None:
        """Ask the worker to leave, as SIGTERM does."""
        self._state.leave(Departure(reason))

    # --- inside ----------------------------------------------------------------------------

    @property
    def _finish_limit_s(self) -> float:
        """The time for which the current work may continue after the request to leave."""
        return finish_limit_s(
            self._session.grace_s, self._settings.grace_margin_s, self._settings.leave_timeout_s
        )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + number)
        self._signalled = True
        # Whether this is a preemption, the end of the job or fewer workers, the master knows.
        self._state.leave(Departure("terminated", signal=number))

    def _run_session(self) -> None:
        try:
            self._exit_code = self._session_exit_code()
        except BaseException:  # nothing may keep the process alive
            traceback.print_exc()
        finally:
            self._heartbeat.stop()
            self._ended.set()

    def _session_exit_code(self) -> int:
        """Run the session to its end, report how it ended, and return the exit code."""
        try:
            self._session.run()
        except LeavingError:
            departure = self._state.departure
            assert departure is not None
            return self._leave(departure, leaves_group=True)
        except EdlError as error:
            log.error("%s", error)
            self._session.report_own_failure(error, permanent=error.code != ErrorCode.INTERNAL)
            return exit_codes.FAILED
        except BaseException as error:
            log.exception("the worker failed")
            self._session.report_own_failure(self._internal_error(error), permanent=False)
            return exit_codes.INTERNAL_ERROR
        raise AssertionError("a session ends by an exception")

    def _internal_error(self, error: BaseException) -> EdlError:
        return EdlError(
            ErrorCode.INTERNAL,
            f"worker {self._settings.worker_id} failed: {type(error).__name__}: {error}",
            where=f"worker {self._settings.worker_id} on {self._identity.host}",
            remedy="This is an internal error, or user code that ends its process; "
            "the detail and the worker's log have the traceback.",
            detail=traceback.format_exc()[-8000:],
        )

    def _leave(self, departure: Departure, *, leaves_group: bool) -> int:
        confirmed = self._session.report_departure(leaves_group=leaves_group)
        if departure.error is not None:
            log.error("%s", departure.error)
        if departure.signal is not None and not confirmed:
            # The platform must not take this for a process that ended on its own account.
            return 128 + departure.signal
        return departure.exit_code


def finish_limit_s(grace_s: float, margin_s: float, leave_timeout_s: float) -> float:
    """Return how long work may continue in a grace period that includes the departure.

    Args:
        grace_s: after which the platform kills the process.
        margin_s: of it that the end of the process needs.
        leave_timeout_s: how long to tell the master may take; less in a short period.
    """
    return max(0.5, grace_s - margin_s) - min(leave_timeout_s, grace_s / 4)
