"""A shard behind its lock: applies pending commands in order, and reads values.

Every thread that takes the lock first applies the commands that are pending, so that what it reads
or changes comes after every decision that was made before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.commands import Command
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.push import Gradient, MinibatchKey
from edl_master.core.parameters.shard import Shard, ShardSnapshot
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.tables.group import ScannedRows
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.parameters.errors import (
    not_ready,
    translate_missing_versions,
    translate_payload_errors,
)

log = logging.getLogger(__name__)

_WARM_UP_WAIT_S = 5.0
"""How long a call waits for loops that are being compiled. It is shorter than any deadline of a
worker, so a worker gets NOT_READY and repeats the call, however long compiling takes."""

MAX_WAIT_S = 4.0
"""How long a call may wait for the first command, and for another one. Together shorter than any
deadline of a worker: a server without an answer counts as lost, while a call that was NOT_READY is
repeated."""

_LONG_WAIT_S = 1.0
"""A wait that is logged: the network to the coordinator is slow."""

NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The values that a worker wants to read, all as of one moment.

    Attributes:
        have: the version that the caller has; it gets no values if there is none newer.
        frozen: name of a frozen version to read instead of the newest.
        rows: rows of embedding tables to read too, if any.
        only_rows: read no values, whatever the version.
    """

    have: Version | None = None
    frozen: str = ""
    rows: RowIds | None = None
    only_rows: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Parameters as they were at one moment.

    Attributes:
        version: of the parameters.
        values: all of them in wire order, or empty if the caller has this version already.
        rows: the rows that were asked for, or empty if there are none yet.
        initialized: False if there are no parameters yet.
    """

    version: Version
    values: memoryview = NOTHING
    rows: memoryview = NOTHING
    initialized: bool = True


class LockedShard:
    """The shard of this process; thread-safe.

    Args:
        buffers: where values are copied to.
        on_snapshot: receives every snapshot that a command has asked for, under the lock.
        on_failed: called once, in a thread of its own, when a command could not be applied;
            nothing works after that.
        begin_timeout_s: how long calls wait for ``begin``.
    """

    def __init__(
        self,
        buffers: BufferPool,
        on_snapshot: Callable[[ShardSnapshot], None],
        on_failed: Callable[[Exception], None],
        begin_timeout_s: float = 0.0,
    ) -> None:
        self._buffers = buffers
        self._on_snapshot = on_snapshot
        self._on_failed = on_failed
        self._begin_timeout_s = begin_timeout_s
        self._changed = threading.Condition()
        self._pending: deque[Command] = deque()
        self._shard: Shard | None = None
        self._failed: Exception | None = None
        self._fingerprint = ""
        self._begun, self._warm = threading.Event(), threading.Event()
        self._over = False

    def begin(self, shard: Shard, fingerprint: str, *, is_warm: bool = False) -> None:
        """Serve a shard from now on.

        Args:
            shard: nothing else uses it.
            fingerprint: of the whole model, which callers name.
            is_warm: whether ``warm_up`` was done on its store already.
        """
        with self._changed:
            self._shard, self._fingerprint = shard, fingerprint
        if is_warm:
            self._warm.set()
        self._begun.set()

    def warm_up(self) -> None:
        """Compile what updates need, at the same time as other calls; no lock is held."""
        try:
            self._served.store.warm_up()
        finally:
            self._warm.set()

    @property
    def layout(self) -> Layout:
        """The layout of this shard; read without the lock, as payloads arrive during updates."""
        return self._served.store.layout

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the job's model."""
        return self._fingerprint

    @property
    def store(self) -> ParameterStore:
        """The store without the lock, for work that may run in parallel to other calls."""
        return self._served.store

    @property
    def _served(self) -> Shard:
        if self._shard is None and self._begin_timeout_s:
            self._begun.wait(self._begin_timeout_s)
        if self._shard is None:
            raise not_ready(
                "the parameters are not set up yet, or the update loops are still being compiled"
            )
        return self._shard

    # --- commands --------------------------------------------------------------------------

    def append(self, command: Command) -> None:
        """Have a command applied before anything else that needs the lock; does not wait."""
        self._pending.append(command)

    def apply(self, command: Command) -> None:
        """Apply a command now."""
        with self._changed:
            self._pending.append(command)
            self.apply_pending()

    def apply_pending(self) -> None:
        """Apply all appended commands and wake the threads that wait for one."""
        with self._changed:
            shard = self._served
            if self._failed is not None:
                raise RuntimeError("an earlier update has failed") from self._failed
            if not self._pending:
                return
            try:
                while self._pending:
                    if (taken := shard.apply(self._pending.popleft())) is not None:
                        self._on_snapshot(taken)
            except Exception as error:
                # Counted, and not or only half applied: these values must not be used any more.
                self._failed = error
                # Not here: it takes the job lock, which comes before this one.
                threading.Thread(
                    target=self._on_failed, args=(error,), name="failed-update", daemon=True
                ).start()
                raise
            finally:
                self._changed.notify_all()

    @contextmanager
    def acquire(self, log_index: int = 0) -> Iterator[Shard]:
        """Lock the shard, and yield it when the command ``log_index`` and all before are applied.

        Raises:
            EdlError: NOT_READY; the command has not come in time.
        """
        with self._changed:
            self.apply_pending()
            self._wait_for(log_index)
            yield self._served

    def _wait_for(self, log_index: int) -> None:
        started = time.monotonic()
        while (applied := self._served.applied) < log_index:
            left_s = started + MAX_WAIT_S - time.monotonic()
            if left_s <= 0 or self._over:
                raise not_ready(f"command {log_index} has not arrived; {applied} commands have")
            self._changed.wait(left_s)
        if (waited_s := time.monotonic() - started) > _LONG_WAIT_S:
            log.warning("a worker waited %.1f s for command %d", waited_s, log_index)

    def end_waits(self) -> None:
        """End all waiting: the job is over."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait_until_warm(self) -> None:
        """Wait for ``warm_up``, which takes minutes on a busy machine without a cache.

        Raises:
            EdlError: NOT_READY; it is not done yet.
        """
        if not self._warm.wait(_WARM_UP_WAIT_S):
            raise not_ready("the update loops are still being compiled")

    # --- what workers send -----------------------------------------------------------------

    def propose(self, worker: WorkerId, values: memoryview) -> None:
        """Hold initial values until the coordinator says whose are used; they are not copied."""
        with self.acquire() as shard:
            shard.propose(worker, values)

    def prepare(
        self,
        worker: WorkerId,
        key: MinibatchKey,
        gradient: Gradient,
        log_index: int,
        release: Callable[[], None],
    ) -> tuple[str, tuple[float, ...]]:
        """Hold a gradient until the coordinator says whether it counts.

        Returns:
            Name of a variable or table that is not finite: then the gradient is not held; or
            nothing. And the sums of squares that other shards need of this part.
        """
        shard = self._served
        with translate_payload_errors():
            prepared = shard.store.prepare(gradient)
            shard.store.check_unique(prepared)
        if prepared.not_finite:
            return prepared.not_finite, ()
        squares = shard.store.squares(prepared) if shard.shares_sums else ()
        with self.acquire(log_index):  # the worker's previous gradient is applied
            shard.prepare(worker, key, prepared, release)
        return "", squares

    def put_rows(self, rows: RowPayload) -> bool:
        """Give rows of a table initial values; False if there are values already."""
        self.wait_until_warm()
        with self.acquire() as shard, translate_payload_errors():
            return shard.store.put_rows(rows)

    # --- reading ---------------------------------------------------------------------------

    @contextmanager
    def read(self, request: ReadRequest, log_index: int = 0) -> Iterator[Reading]:
        """Read values for a worker, into memory that is its own until the context ends.

        Raises:
            EdlError: VERSION_NOT_FOUND if nothing is frozen under that name.
        """
        if request.rows:
            self.wait_until_warm()
        with self.memory_for(request) as (values, rows):
            with self.acquire(log_index) as shard:
                reading = copy_out(shard.store, request, values, rows)
            yield reading

    @contextmanager
    def memory_for(self, request: ReadRequest) -> Iterator[tuple[memoryview, memoryview]]:
        """Memory for values and rows."""
        rows_nbytes = 0
        if request.rows:
            with translate_payload_errors():
                rows_nbytes = self.store.rows_nbytes(request.rows)
        with (
            self._buffers.borrow(self.layout.parameter_nbytes) as values,
            self._buffers.borrow_at_least(rows_nbytes) as rows,
        ):
            yield values, rows

    def scan_rows(
        self, frozen: str, table: int, start: int, most: int, log_index: int = 0
    ) -> ScannedRows:
        """Return some of the rows of a frozen version.

        Args:
            frozen: its name.
            table: number of the table.
            start: 0, or what the last call gave as ``next``.
            most: the limit of rows to scan.
            log_index: as in ``locked``.

        Raises:
            EdlError: VERSION_NOT_FOUND if nothing is frozen under that name.
        """
        with (
            self.acquire(log_index) as shard,
            translate_missing_versions(),
            translate_payload_errors(),
        ):
            return shard.store.scan_rows(frozen, table, start, most)

    def tables(self) -> TableStatistics | None:
        """Return the sizes of embedding tables; None while that would take waiting."""
        if not self._changed.acquire(blocking=False):
            return None
        try:
            return self._shard.store.tables() if self._shard else None
        finally:
            self._changed.release()


def copy_out(
    store: ParameterStore, request: ReadRequest, values: memoryview, rows: memoryview
) -> Reading:
    """Copy what a request asks for, as it is now; with the lock of the store.

    Raises:
        EdlError: VERSION_NOT_FOUND if nothing is frozen under that name.
    """
    with translate_missing_versions():
        frozen = request.frozen
        version = store.frozen_version(frozen) if frozen else store.version
        if not frozen and not store.initialized:
            return Reading(version, initialized=False)
        found_values = found_rows = NOTHING
        if not request.only_rows and request.have != version:
            found_values = values
            store.read_parameters(values, frozen)
        if request.rows:
            found_rows = rows
            store.read_rows(request.rows, rows, frozen)
    return Reading(version, found_values, found_rows)
