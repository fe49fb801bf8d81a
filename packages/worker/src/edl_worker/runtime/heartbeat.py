"""Heartbeats: they renew leases, and their answers carry requests of the master."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import grpc

from edl_proto.errors import EdlError
from edl_worker.concurrency.shared_state import Departure, SharedState
from edl_worker.core.tasks import HeartbeatAnswer, MasterReplacedError
from edl_worker.runtime import thread_stacks
from edl_worker.transport.task_client import TaskClient

log = logging.getLogger(__name__)

# The master expects no report from a worker that leaves for one of these reasons.
_UNREPORTED_REASONS = frozenset(("replaced", "unknown-worker"))


class Heartbeat:
    """A thread that sends heartbeats, whatever the session is doing.

    It also ends a worker whose master is away for too long while the session runs user code.

    Args:
        counters: the worker's counters, which heartbeats carry.
        master_wait_s: how long the master may be away before the worker leaves.
    """

    def __init__(
        self,
        client: TaskClient,
        state: SharedState,
        counters: Callable[[], dict[str, float]],
        master_wait_s: float,
    ) -> None:
        self._client = client
        self._state = state
        self._counters = counters
        self._master_wait_s = master_wait_s
        self._interval_s = 1.0
        self._stacks = ""
        self._unreachable_since: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self, interval_s: float) -> None:
        """Start, or continue with another interval after a new registration."""
        self._interval_s = interval_s or self._interval_s
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def send_last(self) -> None:
        """Report the counters once more, so that none of them is lost."""
        with contextlib.suppress(grpc.RpcError, EdlError, MasterReplacedError):
            self._send(stacks="")

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            # Between the loss of one master and the registration with the next one, no master
            # knows this worker.
            if not self._state.master_replaced:
                self._send_and_apply()

    def _send(self, stacks: str) -> HeartbeatAnswer:
        state = self._state
        return self._client.heartbeat(state.leases(), state.phase, self._counters(), stacks)

    def _send_and_apply(self) -> None:
        incarnation = self._client.incarnation
        try:
            answer = self._send(self._stacks)
        except MasterReplacedError:
            # Unless the session has registered again in the meantime.
            self._state.master_replaced = incarnation == self._client.incarnation
        except EdlError as error:
            log.warning("the master rejected a heartbeat: %s", error.what)
        except grpc.RpcError as error:
            self._on_no_answer(f"{error.code().name}: {error.details()}")
            return
        except Exception:
            log.exception("a heartbeat could not be sent")
            return
        else:
            self._apply(answer)
        self._unreachable_since = None

    def _apply(self, answer: HeartbeatAnswer) -> None:
        self._stacks = ""
        if answer.wants_stacks:
            self._stacks = thread_stacks.format_stacks()
            thread_stacks.log_stacks(self._stacks)
        self._state.mark_lost(answer.lost)
        if answer.leave_reason is not None:
            self._state.leave(departure(answer.leave_reason))

    def _on_no_answer(self, cause: str) -> None:
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        unreachable_s = now - self._unreachable_since
        if unreachable_s > self._master_wait_s:
            error = self._client.lost_error(unreachable_s, cause)
            self._state.leave(Departure("master-lost", error, report=False))


def departure(reason: str) -> Departure:
    """Return how to leave for a reason that the master has given."""
    return Departure(reason, report=reason not in _UNREPORTED_REASONS)
