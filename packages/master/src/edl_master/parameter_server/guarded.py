"""A server's part of the parameters behind its lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.exchange import GradientPush, TableFigures
from edl_master.core.parameters.following import Follower, Kept
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.orders import Order
from edl_master.guarded_plane import GuardedPlane, payloads_told
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

log = logging.getLogger(__name__)

_LONGEST_S = 30.0
"""How long a call may wait for an order: these are as fast as the master's answers."""

_LONG_S = 1.0
"""A wait that somebody may want to know of: the way from the master to here is slow."""


class GuardedFollower(GuardedPlane):
    """Answers workers as ``GuardedPlane`` does, and changes nothing but by orders.

    Args:
        buffers: where values are copied to.
        executor: as in ``ParameterPlane``.
    """

    def __init__(self, buffers: BufferPool, executor: Executor | None = None) -> None:
        super().__init__(lambda _: Async(), None, buffers, executor)
        self._follower: Follower | None = None
        self._begun = threading.Event()
        self._fingerprint = ""

    def begin(self, follower: Follower, fingerprint: str) -> None:
        """Serve this from now on.

        Args:
            follower: the plane.
            fingerprint: of the whole model, which callers name.
        """
        follower.plane.warm_up()
        with self._changed:
            self._follower, self._plane = follower, follower.plane
            self._fingerprint = fingerprint
        self._warm.set()
        self._begun.set()

    @property
    def layout(self) -> Layout:
        """Of this part. Waits until it is there: the worker may be faster."""
        return self._serving.plane.layout

    @property
    def fingerprint(self) -> str:
        """Of the job's model."""
        return self._fingerprint

    @property
    def mark(self) -> int:
        """A worker has its marks from the master."""
        return 0

    @property
    def _serving(self) -> Follower:
        if not self._begun.wait(_LONGEST_S) or self._follower is None:
            raise EdlError(
                error_pb2.NOT_READY, "this parameter server has nothing yet", where="parameters"
            )
        return self._follower

    def tables(self) -> TableFigures | None:
        """How large embedding tables are; None while that cannot be said without waiting."""
        if not self._changed.acquire(blocking=False):
            return None
        try:
            return self._plane.status().tables if self._plane else None
        finally:
            self._changed.release()

    # --- what workers send -----------------------------------------------------------------

    def initialize(self, values: memoryview, worker: WorkerId) -> tuple[bool, Version]:
        """Hold initial values until the master says whose are used; they are not copied."""
        with self._changed:
            self._serving.offer(worker, values)
            return True, self._made.version

    def stage(
        self, worker: WorkerId, push: GradientPush, mark: int, let_go: Callable[[], None]
    ) -> tuple[str, tuple[float, ...]]:
        """Hold a gradient until the master says whether it counts.

        Returns:
            Name of a variable or table that is not finite: then it is not held; or nothing. And
            what the other servers need to know of this part.
        """
        follower = self._serving
        with payloads_told():
            if broken := follower.plane.examine(push):
                return broken, ()
            squares = follower.squares(push)
        with self._changed:
            self._reach(mark)  # the worker's last gradient is in
            follower.stage(worker, push, let_go)
        return "", squares

    def _reach(self, mark: int) -> None:
        started = time.monotonic()
        while self._serving.done < mark:
            left_s = started + _LONGEST_S - time.monotonic()
            if left_s <= 0 or self._over:
                raise EdlError(
                    error_pb2.NOT_READY,
                    f"order {mark} has not come; {self._serving.done} have",
                    where="parameters",
                )
            self._changed.wait(left_s)
        if (waited_s := time.monotonic() - started) > _LONG_S:
            log.warning("a worker waited %.1f s for order %d", waited_s, mark)

    # --- what the master decides -----------------------------------------------------------

    def carry_out(self, order: Order) -> Kept | None:
        """Do what an order says; whoever waits for it is woken."""
        with self._changed:
            kept = self._serving.carry_out(order)
            self._changed.notify_all()
            return kept
