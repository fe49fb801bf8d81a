"""A parameter store: applies committed gradients to values and tables with an optimizer.

A store knows no task, no lease and no permit: the ledger decides, and the store applies. Nothing
here waits, locks or knows the time. The caller holds one lock around each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from edl_master.core.identifiers import Version
from edl_master.core.parameters.accumulator import GradientAccumulator, counts_of
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.commands import CommitPush
from edl_master.core.parameters.copy_on_write import CopyOnWriteViews
from edl_master.core.parameters.frozen import FrozenVersions, find_slot
from edl_master.core.parameters.layout import Arenas, Array, Layout
from edl_master.core.parameters.local_steps import make_updater
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.modes import Sync, UpdateMode, describe
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.payload import Payload
from edl_master.core.parameters.prepared_gradient import PreparedGradient
from edl_master.core.parameters.push import Gradient, NotInitialized
from edl_master.core.parameters.snapshot import FORMAT, Snapshot, SnapshotError, Stored
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.parameters.table_warm_up import warm_up
from edl_master.core.parameters.tables.accumulated_rows import AccumulatedRows
from edl_master.core.parameters.tables.group import ScannedRows, Tables
from edl_master.core.parameters.tables.joint_tables import JointGradient
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.values import Values

_BEGINNING = Version(0)


class ParameterStore:
    """The values of one layout and the optimizer at work on them.

    Attributes:
        layout: the variables and tables.
        initialized: whether there are values.
        version: number of updates since the initial values.
    """

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        executor: Executor | None = None,
    ) -> None:
        """Make a store without values.

        Args:
            layout: the variables.
            optimizer: what an update does.
            mode: whether gradients are accumulated, and whether workers make local steps.
            executor: runs slices of large arenas at the same time; for the store alone. None:
                everything in the calling thread, with the same results.

        Raises:
            OptimizerUnsupported: the optimizer cannot update the layout's embedding tables.
            ValueError: it excludes a variable from weight decay that is not in the layout.
        """
        check_fit(optimizer, layout, mode)
        self.layout = layout
        self.initialized = False
        self.version = Version(0)
        self._mode = mode
        self._values = Values(layout, executor)
        self._updater = make_updater(mode, optimizer, layout, executor)
        self._tables = Tables(layout.tables, optimizer.row_slots, executor)
        self._accumulated_rows = AccumulatedRows(len(self._tables))
        self._frozen = FrozenVersions()
        self._views = CopyOnWriteViews(executor)
        self._accumulator: GradientAccumulator | None = None
        if isinstance(mode, Sync) and mode.grads_to_wait > 1:
            self._accumulator = GradientAccumulator(layout, mode.reduction, executor)

    def warm_up(self) -> None:
        """Compile the loops that updates will need; also while other calls run."""
        self._updater.warm_up()
        self._values.warm_up()
        if self.layout.tables:
            warm_up(self.layout.tables[0], self._updater.optimizer)

    # --- reading ---------------------------------------------------------------------------

    def read_parameters(self, out: Payload, frozen: str = "") -> None:
        """Copy all values, the present ones or frozen ones.

        Args:
            out: of ``layout.parameter_nbytes`` bytes.
            frozen: name of a frozen version or of a slot, as ``find_slot`` takes it; empty: the
                present values.

        Raises:
            NotInitialized: there are no values yet.
            KeyError: nothing is frozen under this name.
            PayloadError: the buffer has another size or is read-only.
        """
        self._require_values()
        values: Arenas = self._values.arenas
        if (slot := find_slot(self._updater.slots, frozen)) is not None:
            values = {**values, **slot}
        elif frozen:
            _, values, _ = self._frozen.get(frozen)
        self._values.store(values, out)

    def frozen_version(self, name: str) -> Version:
        """Return the version that is frozen under a name; ``KeyError`` if none is.

        The version of a slot is the number of updates that the optimizer has made.
        """
        if find_slot(self._updater.slots, name) is not None:
            return Version(self._updater.iterations)
        return self._frozen.get(name)[0]

    def rows_nbytes(self, wanted: RowIds) -> int:
        """Return the bytes of rows.

        Raises:
            PayloadError: there is no such table, or one appears twice.
        """
        return self._tables.nbytes_of(wanted)

    def read_rows(self, wanted: RowIds, out: memoryview, frozen: str = "") -> None:
        """Copy rows, the present ones or frozen ones, to a buffer of ``rows_nbytes``.

        An id that no gradient has reached has its initial row.

        Raises:
            NotInitialized: there are no values yet.
            KeyError: nothing is frozen under this name.
            PayloadError: as ``rows_nbytes``, or the buffer has another size.
        """
        self._require_values()
        view = None
        if frozen:
            _, _, view = self._frozen.get(frozen)
        self._tables.read(wanted, out, view)

    def scan_rows(self, frozen: str, table: int, start: int, most: int) -> ScannedRows:
        """Return some of the rows that gradients have reached, of a frozen version.

        Raises:
            KeyError: nothing is frozen under this name.
            PayloadError: there is no such table.
        """
        _, _, view = self._frozen.get(frozen)
        return self._tables.scan(table, view, start, most)

    def tables(self) -> TableStatistics:
        """Return the sizes of the embedding tables."""
        return TableStatistics(self._tables.rows(), self._tables.nbytes)

    # --- before a commit: may fail, changes no value -----------------------------------------

    def put_rows(self, rows: RowPayload) -> bool:
        """Give rows initial values, before ``initialize``; False once that was done.

        Raises:
            PayloadError: a size is wrong, an id appears twice, or there is no such table.
        """
        if self.initialized:
            return False
        self._tables.put(rows)
        return True

    def prepare(self, gradient: Gradient) -> PreparedGradient:
        """Check a gradient. This may run at the same time as other calls.

        Raises:
            PayloadError: gradient, state delta or rows have the wrong size.
        """
        values = self._values.gradient(gradient.values)
        state = self._values.state_delta(gradient.state_delta)
        rows = self._tables.gradients(gradient.rows) if gradient.rows else ()
        broken = self._values.not_finite(values, state) or self._tables.not_finite(rows)
        return PreparedGradient(values, state, rows, broken)

    def check_unique(self, prepared: PreparedGradient) -> None:
        """Raise ``PayloadError`` if a row appears twice; ``make_ready`` checks that, too."""
        self._tables.check_unique(prepared.rows)

    def squares(self, prepared: PreparedGradient) -> tuple[float, ...]:
        """Return the ``gradient_clip.shared_sums`` of a part of a gradient."""
        rows = {n: part.values for rows in prepared.rows for n, part in rows.by_table()}
        return self._updater.squares(prepared.values, rows)

    def make_ready(self, prepared: PreparedGradient) -> None:
        """Do everything that may fail in applying a gradient; this changes no value.

        Raises:
            PayloadError: a row appears twice.
            MemoryError: there is no room for copies or for more rows.
        """
        self._preserve_views()
        if self._accumulator is None:
            prepared.resolved = self._tables.resolve(prepared.rows)

    # --- commands --------------------------------------------------------------------------

    def initialize(self, values: Payload, version: Version = _BEGINNING) -> None:
        """Set all values: the initial ones, or those that workers have brought to a version.

        Raises:
            PayloadError: the payload has not ``layout.parameter_nbytes`` bytes.
        """
        self._preserve_views()
        self._values.load(values)
        self.initialized, self.version = True, version

    def apply(self, prepared: PreparedGradient, commit: CommitPush) -> None:
        """Apply a gradient, or accumulate it for the next version.

        A state delta is *added* in async and bounded mode: every minibatch moves a moving average
        one step, and as many steps are made as there are minibatches. In sync mode the deltas of
        one version are *averaged* by records, for they are one step seen from several parts of
        one large minibatch.
        """
        self._preserve_views()
        accumulator = self._accumulator
        if accumulator is None:
            rows, squares = prepared.resolved, commit.squares
            if rows is None:
                rows = self._tables.resolve(prepared.rows)
            done = commit.minibatches
            self._update(prepared.values, prepared.state, rows=rows, squares=squares, updates=done)
            return
        self._accumulated_rows.add(prepared.rows, accumulator.weight(commit.records))
        accumulator.add(prepared.values, prepared.state, commit.records)
        if commit.version != self.version:
            self._update_accumulated(accumulator)

    def flush(self) -> None:
        """Make an update of the gradients accumulated so far, though some are missing."""
        self._preserve_views()
        if self._accumulator is not None and self._accumulator.count:
            self._update_accumulated(self._accumulator)

    def set_learning_rate(self, rate: float) -> None:
        """Give all updates from now on this learning rate."""
        self._updater.rate = rate

    def keep_best(self) -> None:
        """Keep the present values as the best so far; snapshots have them. Rows are left out."""
        self._values.keep_best()

    def restore_best(self) -> None:
        """Make the best values the present ones."""
        self._preserve_views()
        self._values.restore_best()
        self.version = Version(self.version + 1)

    def finish(self) -> None:
        """Make the optimizer's average the values, if it keeps one."""
        self._preserve_views()
        if self._updater.finish(self._values.trainable):
            self.version = Version(self.version + 1)

    def freeze(self, name: str) -> None:
        """Keep the present values under a name that is not in use; snapshots leave them out."""
        self._require_values()
        self._frozen.keep(name, self.version, self._values.arenas, self._tables.take_view)

    def release(self, name: str) -> None:
        """Forget frozen values, if there are some under this name."""
        self._frozen.release(name)

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state as it is now, apart from frozen versions.

        The arrays are views: they are copied when they are read, or when they are about to change.
        So this takes no time, and others may read them while updates continue.
        """
        meta: dict[str, Any] = {
            "format": FORMAT,
            "layout": self.layout.describe(),
            "tables": self._tables.describe(),
            "optimizer": dict(self._updater.optimizer.config),
            "mode": describe(self._mode),
            "initialized": self.initialized,
            "best": self._values.best is not None,
            "version": self.version,
            "iterations": self._updater.iterations,
            "memory": dict(self._updater.memory),
            "learning_rate": self._updater.rate,
            **counts_of(self._accumulator),
        }
        arrays: dict[str, Stored] = {
            name: self._views.take(array) for name, array in self._named_arrays()
        }
        return Snapshot(meta, arrays | self._tables.arrays() | self._accumulated_rows.arrays())

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        layout: Layout | None = None,
        executor: Executor | None = None,
    ) -> Self:
        """Return a store that continues where a snapshot was taken, as if there had been no stop.

        Args:
            snapshot: the state, which stays as it is.
            optimizer: of the class that the snapshot was trained with.
            mode: may differ from the snapshot's while no gradients are accumulated.
            layout: if given, must be that of the snapshot.
            executor: as for a new store.

        Raises:
            SnapshotError: the snapshot does not fit, or is damaged.
        """
        snapshot.check(layout, optimizer, mode)
        store = cls(snapshot.layout(), optimizer, mode, executor=executor)
        store._load(snapshot)
        return store

    def _load(self, snapshot: Snapshot) -> None:
        meta = snapshot.meta
        self.initialized = meta["initialized"]
        self.version = Version(meta["version"])
        self._updater.iterations, self._updater.rate = meta["iterations"], meta["learning_rate"]
        self._updater.memory = dict(meta["memory"])
        if meta.get("best"):
            self._values.keep_best()  # filled below
        if self._accumulator is not None:
            self._accumulator.count = meta["accumulated"]
            self._accumulator.records = meta["accumulated_records"]
        snapshot.fill(self._named_arrays())
        try:
            self._tables.restore(meta.get("tables", ()), snapshot.arrays)
        except ValueError as error:
            raise SnapshotError(f"the embedding tables are damaged: {error}") from error
        self._accumulated_rows.restore(snapshot.arrays)

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` if an invariant is violated."""
        assert self.version >= self._updater.iterations, "an update without a version"
        if self._accumulator is not None:
            records, count = self._accumulator.records, self._accumulator.count
            assert (records > 0) == (count > 0), "accumulated gradients miscounted"

    # --- inside ----------------------------------------------------------------------------

    def _named_arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield everything that a snapshot has of arrays."""
        groups = self._values.groups()
        groups |= {f"slots/{name}": slot for name, slot in self._updater.slots.items()}
        if self._accumulator and self._accumulator.records:
            groups |= self._accumulator.groups()
        for group, arenas in groups.items():
            yield from ((f"{group}/{key}", array) for key, array in arenas.items())

    def _preserve_views(self) -> None:
        """Before anything changes: snapshots keep what they have."""
        accumulated = self._accumulator.groups() if self._accumulator else {}
        groups = (self._values.arenas, *self._updater.slots.values(), *accumulated.values())
        self._views.preserve(array for arenas in groups for array in arenas.values())

    def _update_accumulated(self, accumulator: GradientAccumulator) -> None:
        self._update(
            accumulator.gradient,
            accumulator.state,
            accumulator.gradient_scale,
            accumulator.state_scale,
            rows=self._tables.resolve(self._tables.join(self._accumulated_rows.merge())),
        )
        accumulator.reset()
        self._accumulated_rows.reset()

    def _update(
        self,
        gradient: Arenas,
        state: Arenas | None,
        gradient_scale: float = 1.0,
        state_scale: float = 1.0,
        *,
        rows: Sequence[JointGradient] = (),
        squares: tuple[float, ...] = (),
        updates: int = 1,
    ) -> None:
        values = self._values.trainable
        self._updater.apply(values, gradient, gradient_scale, rows, squares, updates)
        if state:
            self._values.move_state(state, state_scale)
        self.version = Version(self.version + updates)

    def _require_values(self) -> None:
        if not self.initialized:
            raise NotInitialized("no worker has sent the initial values yet")
