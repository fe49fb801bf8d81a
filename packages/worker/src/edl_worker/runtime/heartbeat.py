"""Tells the master once a second that this worker lives, and hears what has become of it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import grpc

from edl_proto.errors import EdlError
from edl_worker.concurrency.shared_state import Departure, SharedState
from edl_worker.runtime import thread_stacks
from edl_worker.transport.master_client import MasterClient, MasterReplacedError

log = logging.getLogger(__name__)

# Leaving for these reasons is nothing that the master needs to be told.
NO_FAREWELL = frozenset(("replaced", "unknown-worker"))


_MISSED_S = 3.0
"""A master that is started again answers before that."""


class Heartbeat:
    """A thread that renews leases and hears of lost ones, whatever the session is doing.

    It is also what ends a worker whose master is gone while the session sits in user code.

    Args:
        counters: the worker's counters, carried along.
        master_wait_s: how long the master may be away before the worker leaves.
        on_missed: called with each heartbeat while the master is away for longer than usual;
            somebody has to see to it that it is started again.
    """

    def __init__(
        self,
        client: MasterClient,
        state: SharedState,
        counters: Callable[[], dict[str, float]],
        master_wait_s: float,
        on_missed: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._state = state
        self._counters = counters
        self._master_wait_s = master_wait_s
        self._on_missed = on_missed
        self._every_s = 1.0
        self._stacks = ""
        self._away_since: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self, every_s: float) -> None:
        """Begin, or go on with another interval after a new registration."""
        self._every_s = every_s or self._every_s
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def last(self) -> None:
        """Say a last time what this worker has counted, so that nothing of it is lost."""
        with contextlib.suppress(grpc.RpcError, EdlError, MasterReplacedError):
            self._client.heartbeat(self._counters())

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            # Between the loss of one master and the registration with the next there is
            # nobody who knows this worker.
            if not self._state.replaced:
                self._beat()

    def _beat(self) -> None:
        named = self._client.incarnation
        try:
            reply = self._client.heartbeat(self._counters(), self._stacks)
        except MasterReplacedError:
            # Unless the session has registered again in the meantime.
            self._state.replaced = named == self._client.incarnation
        except EdlError as error:
            log.warning("the master did not take a heartbeat: %s", error.what)
        except grpc.RpcError as error:
            self._away(f"{error.code().name}: {error.details()}")
            return
        except Exception:
            log.exception("a heartbeat could not be sent")
            return
        else:
            self._stacks = ""
            if reply.send_stacks:
                self._stacks = thread_stacks.of_all_threads()
                thread_stacks.show(self._stacks)
            if reply.lost:
                self._state.lose(reply.lost)
            if reply.leave:
                self._state.leave(departure(reply.leave_reason))
        self._away_since = None

    def _away(self, cause: str) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        away_s = now - self._away_since
        if away_s > _MISSED_S:
            self._on_missed()
        if away_s > self._master_wait_s:
            error = self._client.lost(away_s, cause)
            self._state.leave(Departure("master-lost", error, tell=False))


def departure(reason: str) -> Departure:
    """How to leave when the master says so."""
    return Departure(reason, tell=reason not in NO_FAREWELL)
