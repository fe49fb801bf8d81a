"""What the threads of a worker share: its leases, its phase, and whether it has to leave."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from edl_proto.errors import EdlError
from edl_proto.v1 import task_pb2
from edl_worker.core import exit_codes


@dataclass(frozen=True, slots=True)
class Departure:
    """Why this worker ends.

    Attributes:
        reason: one word for the master: preempted, scaled-down, job-over, ...
        error: what a person should read; None when everything is in order.
        tell: whether leases are handed back and the master is told.
        signal: the one that asked for it, if one did.
    """

    reason: str
    error: EdlError | None = None
    tell: bool = True
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        return exit_codes.FAILED if self.error else 0


class LeavingError(Exception):
    """Raised where the session notices that this worker has to leave."""


class SharedState:
    """The only mutable thing that the threads of a worker share.

    The session holds and releases leases, the heartbeat renews them and learns of lost ones,
    and signals, heartbeat and session may each ask the worker to leave: the first one counts.
    """

    def __init__(self) -> None:
        self.phase: task_pb2.WorkerPhase.ValueType = task_pb2.LOADING
        """What the worker is doing; carried to the master by heartbeats."""
        self.replaced = False
        """The heartbeat has met another incarnation of the master."""
        self._lock = threading.Lock()
        self._leases: dict[int, task_pb2.LeaseRef] = {}
        self._lost: set[int] = set()
        self._leaving = threading.Event()
        self._departure: Departure | None = None

    # --- leases ----------------------------------------------------------------------------

    def hold(self, lease: task_pb2.LeaseRef) -> None:
        with self._lock:
            self._leases[lease.token] = lease
            self._lost.discard(lease.token)

    def release(self, lease: task_pb2.LeaseRef) -> None:
        with self._lock:
            self._leases.pop(lease.token, None)
            self._lost.discard(lease.token)

    def release_all(self) -> None:
        with self._lock:
            self._leases.clear()
            self._lost.clear()

    def leases(self) -> list[task_pb2.LeaseRef]:
        """The leases that this worker holds, as far as it knows."""
        with self._lock:
            return [lease for token, lease in self._leases.items() if token not in self._lost]

    def lose(self, leases: Iterable[task_pb2.LeaseRef]) -> None:
        """Remember that these leases are somebody else's now."""
        with self._lock:
            self._lost.update(lease.token for lease in leases if lease.token in self._leases)

    def is_lost(self, lease: task_pb2.LeaseRef) -> bool:
        with self._lock:
            return lease.token in self._lost

    # --- leaving ---------------------------------------------------------------------------

    def leave(self, departure: Departure) -> bool:
        """Ask the worker to leave; say whether this is the first reason given."""
        with self._lock:
            first = self._departure is None
            if first:
                self._departure = departure
        self._leaving.set()
        return first

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

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond the moment at which the worker has to leave.

        Raises:
            LeavingError: it has to.
        """
        if self._leaving.wait(seconds):
            raise LeavingError
