"""State that a worker's threads share: its leases, its phase, and whether it has to leave."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from edl_proto.errors import EdlError
from edl_worker.core import exit_codes
from edl_worker.core.tasks import LeaseRef, MasterReplacedError, TaskLostError, WorkerPhase


@dataclass(frozen=True, slots=True)
class Departure:
    """The reason why this worker ends.

    Attributes:
        reason: one word for the master: terminated, scaled-down, job-over, ...
        error: what the user should read; None when everything is in order.
        report: whether leases are handed back and the departure is reported to the master.
        signal: the signal that asked the worker to leave, if one did.
    """

    reason: str
    error: EdlError | None = None
    report: bool = True
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        return exit_codes.FAILED if self.error else 0


class LeavingError(Exception):
    """Raised where the session notices that this worker has to leave."""


class SharedState:
    """The leases, the phase and the request to leave, which all threads of a worker share.

    The session holds and releases leases; the heartbeat renews them and records lost ones.
    Signals, heartbeat and session may each ask the worker to leave: the first request counts.
    """

    def __init__(self) -> None:
        self.phase = WorkerPhase.LOADING
        """What the worker is doing; heartbeats report it."""
        self.master_replaced = False
        """A heartbeat has met another incarnation of the master."""
        self._lock = threading.Lock()
        self._leases: dict[int, LeaseRef] = {}
        self._lost: set[int] = set()
        self._leaving = threading.Event()
        self._departure: Departure | None = None

    # --- leases ----------------------------------------------------------------------------

    def hold(self, lease: LeaseRef) -> None:
        with self._lock:
            self._leases[lease.token] = lease
            self._lost.discard(lease.token)

    def release(self, lease: LeaseRef) -> None:
        with self._lock:
            self._leases.pop(lease.token, None)
            self._lost.discard(lease.token)

    def release_all(self) -> None:
        with self._lock:
            self._leases.clear()
            self._lost.clear()

    def leases(self) -> list[LeaseRef]:
        """Return the leases that this worker holds, as far as it knows."""
        with self._lock:
            return [lease for token, lease in self._leases.items() if token not in self._lost]

    def mark_lost(self, leases: Iterable[LeaseRef]) -> None:
        """Remember that this worker no longer holds these leases."""
        with self._lock:
            self._lost.update(lease.token for lease in leases if lease.token in self._leases)

    def is_lost(self, lease: LeaseRef) -> bool:
        with self._lock:
            return lease.token in self._lost

    # --- leaving ---------------------------------------------------------------------------

    def leave(self, departure: Departure) -> None:
        """Ask the worker to leave; the first request counts."""
        with self._lock:
            if self._departure is None:
                self._departure = departure
        self._leaving.set()

    @property
    def departure(self) -> Departure | None:
        return self._departure

    @property
    def leaving(self) -> bool:
        return self._leaving.is_set()

    def check(self) -> None:
        """Raise LeavingError if the worker has to leave."""
        if self._leaving.is_set():
            raise LeavingError

    def check_lease(self, lease: LeaseRef) -> None:
        """Make sure that there is still a reason to work on a task.

        Raises:
            LeavingError: the worker has to leave.
            MasterReplacedError: the lease is that of a former incarnation of the master.
            TaskLostError: the worker no longer holds the lease.
        """
        self.check()
        if self.master_replaced:
            raise MasterReplacedError("a heartbeat has met another master")
        if self.is_lost(lease):
            raise TaskLostError

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond the moment at which the worker has to leave.

        Raises:
            LeavingError: it has to.
        """
        if self._leaving.wait(seconds):
            raise LeavingError
