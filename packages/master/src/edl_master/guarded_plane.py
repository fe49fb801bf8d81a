"""The parameter plane behind its lock, and the waiting that the plane itself does not do.

Whoever holds the job's lock may take this one, never the other way round.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.events import HeldLease
from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.exchange import (
    GradientPush,
    PermitGranted,
    PermitRefused,
    PlaneStatus,
    PushOutcome,
    TableFigures,
)
from edl_master.core.parameters.faults import LayoutError
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.leading import LeadingPlane
from edl_master.core.parameters.modes import Reduction, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.orders import Order
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.sharding import NOTHING, Part, Saved, cut, sums_between, whole
from edl_master.core.parameters.snapshot import Snapshot, SnapshotError
from edl_master.core.parameters.tables.group import Scanned
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.spec import TableSpec
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

_LONGEST_WARM_UP_S = 60.0
"""After that the first push compiles for itself what is still missing."""

_NOTHING = memoryview(b"")


class Servers(Protocol):
    """The parameter servers, as far as whoever decides has to know them. None of these waits."""

    @property
    def count(self) -> int: ...

    @property
    def given(self) -> int:
        """Orders so far."""
        ...

    def begin(self, model: Layout, optimizer_json: str, mode: UpdateMode) -> None:
        """Before the first order: what they are to serve."""
        ...

    def give(self, order: Order) -> None: ...

    def next_label(self) -> str:
        """A name for a snapshot that no other one has."""
        ...

    def tables(self) -> TableFigures:
        """How large embedding tables are, of all servers together."""
        ...


MakeMode = Callable[[Reduction], UpdateMode]


@dataclass(frozen=True, slots=True)
class Pulled:
    """Parameters as they were at one moment.

    Attributes:
        version: of the parameters.
        values: all of them in wire order, or empty if the caller has this version already.
        rows: the rows that were asked for, or empty if there are none yet.
        initialized: False if there are no parameters yet.
        slot: what became of the request for a step permit; None if there was none.
    """

    version: Version
    values: memoryview
    rows: memoryview = _NOTHING
    initialized: bool = True
    slot: PermitGranted | PermitRefused | None = None


class GuardedPlane:
    """The parameters of one job, for many threads.

    There is no plane until the first worker has described its model; every method that needs
    one raises ``EdlError`` NOT_READY before.

    Args:
        make_mode: how gradients become updates, given how the loss reduces a minibatch.
        reduction: of the loss, if the user has said so.
        buffers: where values are copied to.
        executor: as in ``ParameterPlane``.
        saved: what to go on from, if this is not the beginning.
        on_made: told once there is a plane, and to call ``warm_up`` in the background; until
            that is done nothing is applied. None: everything is compiled by the first push.
        servers: who holds the values; None: this plane does.
    """

    def __init__(
        self,
        make_mode: MakeMode,
        reduction: Reduction | None,
        buffers: BufferPool,
        executor: Executor | None = None,
        saved: Saved | None = None,
        on_made: Callable[[], None] | None = None,
        servers: Servers | None = None,
    ) -> None:
        self._make_mode = make_mode
        self._reduction = reduction
        self._buffers = buffers
        self._executor = executor
        self._saved = saved
        self._on_made = on_made
        self._servers = servers
        self._changed = threading.Condition()
        self._plane: ParameterPlane | None = None
        self._model: Layout | None = None
        self._parts: tuple[Part, ...] = ()
        self._over = False
        self._warm = threading.Event()

    # --- the model -------------------------------------------------------------------------

    def describe(
        self,
        variables: tuple[Variable, ...],
        optimizer_json: str,
        reduction: str,
        tables: Callable[[], tuple[TableSpec, ...]] = tuple,
    ) -> tuple[str, bool]:
        """Take a worker's description of its model; the first one makes the plane.

        Returns:
            The layout's fingerprint, and whether initial values are still missing.

        Raises:
            EdlError: MODEL_CONTRACT, OPTIMIZER_UNSUPPORTED or SHAPE_MISMATCH.
        """
        try:
            layout = Layout(variables, tables())
        except LayoutError as error:
            raise EdlError(error_pb2.MODEL_CONTRACT, str(error), where="the model") from error
        with self._changed:
            if self._plane is None or self._model is None:
                self._plane = self._make(layout, optimizer_json, reduction)
                self._model = layout
                if self._on_made is None:
                    self._warm.set()
                else:
                    self._on_made()
            elif difference := self._model.mismatch(layout):
                raise EdlError(
                    error_pb2.SHAPE_MISMATCH,
                    f"this worker's model is not the job's: {difference}",
                    where="the model",
                    remedy="All workers must load the same model file and build it the same way.",
                )
            return layout.fingerprint, not self._plane.initialized

    def _make(self, layout: Layout, optimizer_json: str, reduction: str) -> ParameterPlane:
        try:
            optimizer = parse_optimizer(json.loads(optimizer_json))
            mode = self._make_mode(self._reduction or Reduction(reduction or Reduction.MEAN))
            if self._saved and (difference := self._saved.model().mismatch(layout)):
                raise SnapshotError(f"the snapshot is of another model: {difference}")
            if self._servers is None:
                plane = self._make_whole(layout, optimizer, mode)
            else:
                plane = self._make_leading(self._servers, layout, optimizer, mode)
                self._servers.begin(layout, optimizer_json, mode)
        except OptimizerUnsupported as error:
            raise EdlError(
                error_pb2.OPTIMIZER_UNSUPPORTED,
                str(error),
                where="the optimizer of the model file",
                remedy=f"Instead: {error.remedy}.",
            ) from error
        except SnapshotError as error:
            raise EdlError(
                error_pb2.SHAPE_MISMATCH,
                f"the checkpoint does not fit: {error}",
                where="--checkpoint-dir",
                remedy="Use the model file that it was made with, or another directory.",
            ) from error
        except ValueError as error:
            raise EdlError(
                error_pb2.MODEL_CONTRACT, str(error), where="the optimizer or loss of the model"
            ) from error
        self._saved = None  # its memory is the plane's now
        return plane

    def _make_whole(self, model: Layout, optimizer: Optimizer, mode: UpdateMode) -> ParameterPlane:
        if self._saved is None:
            return ParameterPlane(model, optimizer, mode, executor=self._executor)
        snapshot = self._saved.decided
        if self._saved.parts:
            snapshot = self._saved.part(model, whole(model), optimizer)
        return ParameterPlane.restore(
            snapshot, optimizer, mode, layout=model, executor=self._executor
        )

    def _make_leading(
        self, servers: Servers, model: Layout, optimizer: Optimizer, mode: UpdateMode
    ) -> LeadingPlane:
        self._parts = cut(model, servers.count, optimizer, mode)
        sums = sums_between(model, servers.count, optimizer, mode)
        plane = LeadingPlane(model, optimizer, mode, servers.give, sums)
        if self._saved is not None:
            decided = self._saved.part(model, NOTHING, optimizer)
            decided.check(NOTHING.layout, optimizer, mode)
            plane.take_up(decided)
        return plane

    def warm_up(self) -> None:
        """Compile what updates need, beside all else: it takes seconds, and no lock is held."""
        try:
            self._made.warm_up()
        finally:
            self._warm.set()

    @property
    def layout(self) -> Layout:
        """What travels to and from here; nothing, if others hold the values.

        Takes no lock: payloads are received while others are applied.
        """
        if self._model is None:
            raise _not_ready()
        return self._model if self._servers is None else NOTHING.layout

    @property
    def fingerprint(self) -> str:
        """Of the job's model."""
        if self._model is None:
            raise _not_ready()
        return self._model.fingerprint

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of the parameter servers, in their order."""
        return self._parts

    @property
    def mark(self) -> int:
        """Orders to parameter servers so far."""
        return 0 if self._servers is None else self._servers.given

    @property
    def _made(self) -> ParameterPlane:
        if self._plane is None:
            raise _not_ready()
        return self._plane

    # --- values ----------------------------------------------------------------------------

    def initialize(self, values: memoryview, worker: WorkerId) -> tuple[bool, Version]:
        """Set the initial values unless another worker was first; say so, and the version.

        Args:
            values: all of them; nothing, if the worker has offered them to parameter servers.
            worker: whose they are.
        """
        with self._changing() as plane:
            if isinstance(plane, LeadingPlane):
                return plane.adopt(worker), plane.version
            return plane.initialize(values), plane.version

    def push(self, push: GradientPush) -> PushOutcome:
        """Apply a gradient and count its minibatch, in one step."""
        if self._model is None:
            raise _not_ready()
        self._warm.wait(_LONGEST_WARM_UP_S)
        with self._changing() as plane, payloads_told():
            return plane.push(push)

    def put_rows(self, rows: RowPayload) -> bool:
        """Give rows of a table initial values; False if there are values already."""
        self._warm.wait(_LONGEST_WARM_UP_S)
        with self._changed, payloads_told():
            return self._made.put_rows(rows)

    def scan_rows(self, frozen: str, table: int, start: int, most: int, mark: int = 0) -> Scanned:
        """Some of the rows of a frozen version.

        Args:
            frozen: its name.
            table: number of the table.
            start: 0, or what the last call gave as ``next``.
            most: rows to look at.
            mark: as in ``pulled``.

        Raises:
            EdlError: NOT_READY if nothing is frozen under that name.
        """
        with self._changed, _frozen_told(), payloads_told():
            self._reach(mark)
            return self._made.scan_rows(frozen, table, start, most)

    @contextmanager
    def pulled(
        self,
        *,
        have: Version | None,
        frozen: str = "",
        rows: Sequence[RowIds] = (),
        slot_for: HeldLease | None = None,
        wait_s: float = 0.0,
        is_wanted: Callable[[], bool] = lambda: True,
        mark: int = 0,
        only_rows: bool = False,
    ) -> Iterator[Pulled]:
        """Values for a worker, in memory that is its own as long as the context lasts.

        Args:
            have: the version that the caller holds; it gets no values if there is none newer.
            frozen: name of a frozen version to read instead.
            rows: rows to read too, at the same moment.
            slot_for: wait for a step permit for this lease, and read what is there then.
            wait_s: how long to wait at most: for the slot, or without one for initial values.
            is_wanted: False when nobody waits for the answer any more.
            mark: wait until so many orders are carried out, whatever ``wait_s`` is.
            only_rows: read no values, whatever the version.

        Raises:
            EdlError: NOT_READY if nothing is frozen under that name.
        """
        nbytes = self._rows_nbytes(rows)
        with (
            self._buffers.lent(self.layout.parameter_nbytes) as out,
            self._buffers.at_least(nbytes) as rows_out,
        ):
            if rows:
                self._warm.wait(_LONGEST_WARM_UP_S)
            deadline = time.monotonic() + wait_s
            with self._changed:
                self._reach(mark)
                slot = self._wait(slot_for, deadline, is_wanted)
                have = self._version_of(frozen) if only_rows else have
                pulled = self._read(out, have, frozen, slot)
                wanted = pulled.initialized and (slot_for is None or slot is not None)
                if rows and wanted and not isinstance(slot, PermitRefused):
                    self._made.read_rows(rows, rows_out, frozen)
                    pulled = replace(pulled, rows=rows_out)
            yield pulled

    def _reach(self, mark: int) -> None:
        """Whoever decides is always as far as its own answers."""

    def _rows_nbytes(self, rows: Sequence[RowIds]) -> int:
        if not rows:
            return 0
        with payloads_told():
            return self._made.rows_nbytes(rows)

    def _wait(
        self, slot_for: HeldLease | None, deadline: float, is_wanted: Callable[[], bool]
    ) -> PermitGranted | PermitRefused | None:
        plane = self._made
        while True:
            if slot_for is None:
                if plane.initialized:
                    return None
            else:
                answer = plane.request_permit(slot_for.task, slot_for.token)
                if isinstance(answer, PermitGranted | PermitRefused):
                    return answer
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._over:
                return None
            self._changed.wait(left_s)
            if not is_wanted():
                return None

    def _version_of(self, frozen: str) -> Version:
        with _frozen_told():
            return self._made.frozen_version(frozen) if frozen else self._made.version

    def _read(
        self,
        out: memoryview,
        have: Version | None,
        frozen: str,
        slot: PermitGranted | PermitRefused | None,
    ) -> Pulled:
        plane = self._made
        if frozen:
            with _frozen_told():
                if have is not None and plane.frozen_version(frozen) == have:
                    return Pulled(have, _NOTHING)
                return Pulled(plane.read_frozen(frozen, out), out)
        if not plane.initialized or have == plane.version:
            return Pulled(plane.version, _NOTHING, initialized=plane.initialized, slot=slot)
        return Pulled(plane.read_parameters(out), out, slot=slot)

    # --- what the job decides --------------------------------------------------------------

    def grant(self, task: TaskKey, token: Token) -> int:
        """From now on only this token may push for the task; returns the minibatches to skip."""
        with self._changing() as plane:
            return plane.grant(task, token)

    def revoke(self, task: TaskKey, token: Token) -> None:
        """This token may push no more."""
        with self._changing_if_made() as plane:
            if plane and not plane.revoke(task, token):
                self._changed.notify_all()  # no slot became free, but its holder may wait for one

    def close(self, task: TaskKey) -> None:
        """Forget the count of a task that is complete or given up."""
        with self._changing_if_made() as plane:
            if plane:
                plane.close(task)

    def applied(self, task: TaskKey) -> int:
        """Minibatches of an open task that have been applied; 0 for any other task."""
        with self._changed:
            return self._plane.applied_counts().get(task, 0) if self._plane else 0

    def flush(self) -> None:
        """Make an update of what has been gathered (sync mode)."""
        with self._changing_if_made() as plane:
            if plane:
                plane.flush()

    def finish(self) -> None:
        """Training is over: put the optimizer's average of the values in place, if it has one."""
        with self._changing_if_made() as plane:
            if plane:
                plane.finish()

    def freeze(self, name: str) -> Version:
        """Keep the present values under a name."""
        with self._changed:
            return self._made.freeze(name)

    def release(self, name: str) -> None:
        """Forget frozen values."""
        with self._changed:
            if self._plane:
                self._plane.release(name)

    def snapshot(self, place: str) -> Snapshot | None:
        """A copy of everything; None while there is nothing to keep.

        Args:
            place: where parameter servers are to write their parts of it.
        """
        with self._changed:
            if self._plane is None or not self._plane.initialized:
                return None
            if isinstance(self._plane, LeadingPlane) and self._servers is not None:
                return self._plane.keep(self._servers.next_label(), place)
            return self._plane.snapshot()

    def status(self) -> PlaneStatus | None:
        """Figures; None while there is no plane."""
        with self._changed:
            status = self._plane.status() if self._plane else None
        if status is not None and self._servers is not None:
            return replace(status, tables=self._servers.tables())
        return status

    def table_rows(self) -> Mapping[str, int]:
        """Rows of each embedding table; empty while there is no plane."""
        plane = self.status()
        return plane.tables.rows if plane else {}

    def let_go(self) -> None:
        """The job is over: nobody waits here any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @contextmanager
    def _changing(self) -> Iterator[ParameterPlane]:
        with self._changed:
            plane = self._made
            before = plane.generation
            try:
                yield plane
            finally:
                if plane.generation != before:
                    self._changed.notify_all()

    @contextmanager
    def _changing_if_made(self) -> Iterator[ParameterPlane | None]:
        if self._plane is None:
            yield None
        else:
            with self._changing() as plane:
                yield plane


@contextmanager
def payloads_told() -> Iterator[None]:
    """What no worker of this version sends is a usage error, and not a defect of the master."""
    try:
        yield
    except PayloadError as error:
        raise EdlError(
            error_pb2.SHAPE_MISMATCH,
            str(error),
            where="parameters",
            remedy="All workers must load the same model file and build it the same way.",
        ) from error


@contextmanager
def _frozen_told() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise EdlError(error_pb2.NOT_READY, str(error.args[0]), where="parameters") from error


def _not_ready() -> EdlError:
    return EdlError(
        error_pb2.NOT_READY, "no worker has described its model yet", where="parameters"
    )
