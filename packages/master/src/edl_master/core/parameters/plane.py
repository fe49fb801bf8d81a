"""The parameter plane: values, and what each push does to them.

One push does one thing: if the minibatch it names has not been counted yet, its gradient goes in
and the count of its task goes up, *in the same step*. A push that is repeated, late or comes from
a former holder of the task changes nothing. That is all there is to "every record trains the
model exactly once".

Nothing here waits, locks or knows the time. The caller holds one lock around each call, and
waits, outside of it, for ``generation`` to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self

from edl_master.core.identifiers import TaskKey, Token, Version
from edl_master.core.parameters.applied_counts import AppliedCounts, PushVerdict
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.copy_on_write import CopyOnWriteViews
from edl_master.core.parameters.exchange import (
    GradientPush,
    NotInitialized,
    PermitAnswer,
    PermitGranted,
    PermitPending,
    PermitRefused,
    PlaneStatus,
    PushKind,
    PushOutcome,
    TableFigures,
)
from edl_master.core.parameters.frozen import FrozenVersions
from edl_master.core.parameters.joining import GradientAccumulator, StepPermits
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Arenas, Array, Layout
from edl_master.core.parameters.modes import Async, Bounded, Sync, UpdateMode, describe
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.payload import Payload, PayloadError
from edl_master.core.parameters.snapshot import FORMAT, Snapshot, SnapshotError, Stored
from edl_master.core.parameters.tables.group import AccumulatedRows, RowGradients, Scanned, Tables
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.warming import warm_up
from edl_master.core.parameters.updater import RowUpdate, Updater
from edl_master.core.parameters.values import Values

_REJECTIONS = {
    PushVerdict.REFUSED: PushKind.REFUSED,
    PushVerdict.ALREADY_APPLIED: PushKind.ALREADY_APPLIED,
    PushVerdict.OUT_OF_ORDER: PushKind.OUT_OF_ORDER,
}


class ParameterPlane:
    """The parameters of one job, the optimizer at work on them, and the counts of its tasks."""

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        executor: Executor | None = None,
        check_finite: bool = True,
    ) -> None:
        """Make a plane without values.

        Args:
            layout: the variables.
            optimizer: what an update does.
            mode: when there is an update.
            executor: runs slices of large arenas at the same time; for the plane alone. None:
                everything in the calling thread, with the same results.
            check_finite: refuse gradients with infinities or NaNs (one more pass over each).

        Raises:
            OptimizerUnsupported: the optimizer cannot update the layout's embedding tables.
            ValueError: it excludes a variable from weight decay that is not in the layout.
        """
        check_fit(optimizer, layout, mode)
        self.layout = layout
        self.mode = mode
        self._check_finite = check_finite
        self._values = Values(layout, executor)
        self._local = isinstance(mode, Async) and mode.local
        self._updater = Updater(optimizer, layout, executor, local=self._local)
        slots = tuple(slot.initial for slot in optimizer.rule.slots() if slot.used)
        self._tables = Tables(layout.tables, slots, executor)
        self._accumulated_rows = AccumulatedRows(len(self._tables))
        self._applied = AppliedCounts()
        self._frozen = FrozenVersions()
        self._views = CopyOnWriteViews(executor)
        self._initialized = False
        self._version = Version(0)
        self._openings = 0
        self._records_applied = 0
        self._staleness_total = 0
        self._outcomes: Counter[PushKind] = Counter()
        self._steps = StepPermits(mode.grads_to_wait if isinstance(mode, Sync) else None)
        self._accumulator: GradientAccumulator | None = None
        if isinstance(mode, Sync) and mode.grads_to_wait > 1:
            self._accumulator = GradientAccumulator(layout, mode.reduction, executor)

    # --- values ----------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Compile the loops that updates will need, so that the first push need not wait.

        This may run beside other calls: it looks at dtypes alone.
        """
        if not self._local:
            self._updater.warm_up()
        self._values.warm_up()
        if self.layout.tables:
            warm_up(self.layout.tables[0], self._updater.optimizer)

    @property
    def initialized(self) -> bool:
        """Whether there are values."""
        return self._initialized

    @property
    def version(self) -> Version:
        """How many updates have been made since the initial values."""
        return self._version

    def initialize(self, values: Payload) -> bool:
        """Set the initial values, once; say whether these are they.

        Raises:
            PayloadError: the payload has not ``layout.parameter_nbytes`` bytes.
        """
        if self._initialized:
            return False
        self._own_arrays()
        self._values.load(values)
        self._initialized = True
        self._openings += 1
        return True

    def read_parameters(self, out: Payload) -> Version:
        """Copy all values into a buffer of ``layout.parameter_nbytes``; return their version.

        Raises:
            NotInitialized: there are no values yet.
            PayloadError: the buffer has another size or is read-only.
        """
        self._require_values()
        self._values.store(self._values.arenas, out)
        return self._version

    def freeze(self, name: str) -> Version:
        """Keep the present values under a name and return their version.

        A name keeps what it was given first until it is released. Frozen versions are no part
        of a snapshot: what needed them begins again with a new one.

        Raises:
            NotInitialized: there are no values yet.
        """
        self._require_values()
        return self._frozen.keep(name, self._version, self._values.arenas, self._tables.take_view)

    def frozen_version(self, name: str) -> Version:
        """Which version is frozen under a name.

        Raises:
            KeyError: none is.
        """
        return self._frozen.get(name)[0]

    def read_frozen(self, name: str, out: Payload) -> Version:
        """Copy frozen values into a buffer, as ``read_parameters`` does.

        Raises:
            KeyError: nothing is frozen under this name.
            PayloadError: the buffer has another size or is read-only.
        """
        version, values, _ = self._frozen.get(name)
        self._values.store(values, out)
        return version

    def release(self, name: str) -> bool:
        """Forget frozen values; say whether there were some."""
        return self._frozen.release(name)

    # --- rows of embedding tables ----------------------------------------------------------

    def put_rows(self, rows: RowPayload) -> bool:
        """Give rows initial values, before ``initialize``; False once that was done.

        Raises:
            PayloadError: a size is wrong, an id comes twice, or there is no such table.
        """
        if self._initialized:
            return False
        self._tables.put(rows)
        return True

    def rows_nbytes(self, wanted: Sequence[RowIds]) -> int:
        """Bytes of rows.

        Raises:
            PayloadError: there is no such table, or ids are cut short.
        """
        return self._tables.nbytes_of(wanted)

    def read_rows(self, wanted: Sequence[RowIds], out: memoryview, frozen: str = "") -> Version:
        """Copy rows, the present ones or frozen ones, to a buffer of ``rows_nbytes``.

        An id that no gradient has reached has its initial row.

        Raises:
            NotInitialized: there are no values yet.
            KeyError: nothing is frozen under this name.
            PayloadError: as ``rows_nbytes``, or the buffer has another size.
        """
        self._require_values()
        if frozen:
            version, _, lent = self._frozen.get(frozen)
            self._tables.read(wanted, out, lent)
            return version
        self._tables.read(wanted, out)
        return self._version

    def scan_rows(self, frozen: str, table: int, start: int, most: int) -> Scanned:
        """Some of the rows that gradients have reached, of a frozen version.

        Raises:
            KeyError: nothing is frozen under this name.
            PayloadError: there is no such table.
        """
        _, _, lent = self._frozen.get(frozen)
        return self._tables.scan(table, lent, start, most)

    # --- leases ----------------------------------------------------------------------------

    def grant(self, task: TaskKey, token: Token) -> int:
        """A lease was granted: from now on only this token may push for the task.

        Returns:
            How many of the task's minibatches have been applied: the holder skips them.

        Raises:
            ValueError: the token is older than one that the task had before.
        """
        is_repeated = self._applied.is_live(task, token)
        applied = self._applied.grant(task, token)
        if not is_repeated:
            self._end_lease(task)
        return applied

    def revoke(self, task: TaskKey, token: Token) -> bool:
        """A lease was lost: its token may push no more, the count stays for the next holder.

        Returns:
            Whether a step permit became free. Nothing happens if the lease was not current.
        """
        return self._applied.revoke(task, token) and self._end_lease(task)

    def close(self, task: TaskKey) -> int:
        """A task is complete or given up: forget its count, and return it.

        A closed task must not be granted again: it would start at 0. The ledger of tasks is
        therefore saved in the same step as a snapshot of the plane, or before it.
        """
        self._end_lease(task)
        return self._applied.close(task)

    # --- step permits ------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows whenever an answer of ``PermitPending`` may have become another."""
        return self._openings

    def request_permit(self, task: TaskKey, token: Token) -> PermitAnswer:
        """Ask for the right to compute a gradient for the next minibatch of a task.

        In sync mode there are as many step permits as gradients that the present version still
        lacks; otherwise there is always one. A lease has at most one, until its gradient is
        applied, the lease ends or the slot is released; asking again changes nothing.
        """
        if not self._applied.is_live(task, token):
            return PermitRefused()
        if self._initialized and self._steps.take(task):
            return PermitGranted(self._version)
        return PermitPending(self._openings)

    def release_permit(self, task: TaskKey, token: Token) -> bool:
        """Give back a step permit unused; say whether one became free."""
        if not self._applied.is_live(task, token):
            return False
        freed = self._steps.give_back(task)
        self._openings += freed
        return freed

    # --- updates ---------------------------------------------------------------------------

    def push(self, push: GradientPush) -> PushOutcome:
        """Apply a gradient, or gather it for the next version, and count its minibatch.

        A state delta is *added* in async and bounded mode: every minibatch moves a moving average
        one step, and as many steps are made as there are minibatches. In sync mode the deltas of
        one version are *averaged* by records, for they are one step seen from several parts of
        one large minibatch.

        Raises:
            NotInitialized: there are no values yet.
            PayloadError: gradient, state delta or rows have the wrong size, or a row comes twice,
                or there are several minibatches in a mode without local steps.
            MemoryError: there is no room for more rows.
            ValueError: there are no records in the minibatch.
        """
        self._require_values()
        if push.records < 1:
            raise ValueError(f"a gradient of {push.records} records cannot be weighed")
        if push.minibatches < 1 or (push.minibatches > 1 and not self._local):
            raise PayloadError(f"a gradient of {push.minibatches} minibatches, without local steps")
        gradient = self._values.gradient(push.gradient)
        state = self._values.state_delta(push.state_delta)
        rows = self._tables.gradients(push.rows)

        staleness = self._version - push.base_version
        standing = self._applied.standing(push.task, push.token, push.minibatch, push.minibatches)
        if standing is not PushVerdict.DUE:
            return self._outcome(_REJECTIONS[standing], staleness)
        if self._is_stale(staleness):
            return self._outcome(PushKind.STALE, staleness)
        if self._check_finite and (broken := self._values.not_finite(gradient, state)):
            return self._outcome(PushKind.INVALID, staleness, detail=broken)
        if self._check_finite and (broken := self._tables.not_finite(rows)):
            return self._outcome(PushKind.INVALID, staleness, detail=broken)
        if not self._steps.take(push.task):
            # All gradients that this version lacks are being computed under step permits.
            return self._outcome(PushKind.STALE, staleness)

        new_version = self._put(push, gradient, state, rows)
        self._applied.advance(push.task, push.minibatches)
        self._records_applied += push.records
        self._staleness_total += staleness
        return self._outcome(PushKind.APPLIED, staleness, new_version=new_version)

    def examine(self, push: GradientPush) -> str:
        """Look at a gradient that is to be pushed later; nothing changes.

        Returns:
            Name of a variable or table with an infinity or NaN, or an empty string.

        Raises:
            PayloadError: gradient, state delta or rows have the wrong size, or a row comes twice.
        """
        gradient = self._values.gradient(push.gradient)
        state = self._values.state_delta(push.state_delta)
        rows = self._tables.gradients(push.rows)
        for payload in push.rows:
            self._tables.check_unique(payload)
        return self._values.not_finite(gradient, state) or self._tables.not_finite(rows)

    def squares(self, push: GradientPush) -> tuple[float, ...]:
        """The ``clipping.shared_sums`` of a part of a gradient.

        Raises:
            PayloadError: as ``examine``.
        """
        if self._local:
            return ()
        rows = self._tables.gradients(push.rows)
        values = {number: gradient.values for number, gradient in rows.items()}
        return self._updater.squares(self._values.gradient(push.gradient), values)

    def flush(self) -> bool:
        """Make an update of the gradients accumulated so far, though some are missing (sync mode).

        For the end of an epoch, when no minibatch is left that could fill the version. While a
        step permit is held a gradient is still on its way, and nothing is done.

        Returns:
            Whether there is a new version.
        """
        if self._steps.holders or not self._steps.filled:
            return False
        self._own_arrays()
        self._join()
        return True

    def finish(self) -> bool:
        """Training is over: put the optimizer's average of the values, if it keeps one, in place.

        GradientAccumulator gradients are applied first.

        Returns:
            Whether there is a new version.

        Raises:
            RuntimeError: accumulated gradients wait for others that are still being computed.
        """
        flushed = self.flush()
        if self._steps.filled:
            raise RuntimeError("training is not over: a gradient is still being computed")
        self._own_arrays()
        if not self._updater.finish(self._values.trainable):
            return flushed
        self._next_version()
        return True

    # --- state -----------------------------------------------------------------------------

    def applied_counts(self) -> dict[TaskKey, int]:
        """How many minibatches of each open task have been applied."""
        return self._applied.counts()

    def status(self) -> PlaneStatus:
        """Figures for the status page and metrics."""
        rejected = Counter(self._outcomes)
        del rejected[PushKind.APPLIED]
        return PlaneStatus(
            version=self._version,
            learning_rate=self._updater.learning_rate,
            records_applied=self._records_applied,
            gradients_applied=self._outcomes[PushKind.APPLIED],
            gradients_rejected=rejected,
            staleness_total=self._staleness_total,
            accumulated=self._steps.filled,
            step_permits_held=len(self._steps.holders),
            open_tasks=len(self._applied.counts()),
            tables=TableFigures(self._tables.rows(), self._tables.nbytes),
        )

    def snapshot(self) -> Snapshot:
        """The whole state as it is now, apart from frozen versions and step permits.

        It is copied when it is read, or when it is about to change; so this takes no time, and
        others may read it while updates go on.
        """
        meta = {
            "format": FORMAT,
            "layout": self.layout.describe(),
            "tables": self._tables.describe(),
            "optimizer": dict(self._updater.optimizer.config),
            "mode": describe(self.mode),
            "initialized": self._initialized,
            "version": self._version,
            "iterations": self._updater.iterations,
            "memory": dict(self._updater.memory),
            "applied": self._applied.describe(),
            "accumulated": self._steps.filled,
            "accumulated_records": self._accumulator.records if self._accumulator else 0,
            "records_applied": self._records_applied,
            "staleness_total": self._staleness_total,
            "outcomes": {str(kind): count for kind, count in self._outcomes.items()},
        }
        arrays: dict[str, Stored] = {
            name: self._views.take(array) for name, array in self._named_arrays()
        }
        return Snapshot(
            meta, {**arrays, **self._tables.arrays(), **self._accumulated_rows.arrays()}
        )

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        layout: Layout | None = None,
        executor: Executor | None = None,
        check_finite: bool = True,
    ) -> Self:
        """A plane that goes on where a snapshot was taken, as if there had been no stop.

        Step slots are dropped: their holders ask again. Leases are as they were.

        Args:
            snapshot: the state, which stays as it is.
            optimizer: of the class that the snapshot was trained with.
            mode: may differ from the snapshot's while no gradients are gathered.
            layout: if given, must be that of the snapshot.
            executor: as for a new plane.
            check_finite: as for a new plane.

        Raises:
            SnapshotError: the snapshot does not fit, or is damaged.
        """
        snapshot.check(layout, optimizer, mode)
        plane = cls(
            snapshot.layout(), optimizer, mode, executor=executor, check_finite=check_finite
        )
        plane.take_up(snapshot)
        return plane

    def take_up(self, snapshot: Snapshot) -> None:
        """Become what a snapshot holds; for a plane that was just made, of a fitting snapshot.

        Raises:
            SnapshotError: it is damaged.
        """
        meta = snapshot.meta
        self._initialized = meta["initialized"]
        self._version = Version(meta["version"])
        self._updater.iterations = meta["iterations"]
        self._updater.memory = dict(meta["memory"])
        self._applied.restore(meta["applied"])
        self._steps.filled = meta["accumulated"] if isinstance(self.mode, Sync) else 0
        if self._accumulator:
            self._accumulator.records = meta["accumulated_records"]
        self._records_applied = meta["records_applied"]
        self._staleness_total = meta["staleness_total"]
        self._outcomes.update({PushKind(k): n for k, n in meta["outcomes"].items()})
        snapshot.fill(self._named_arrays())
        try:
            self._tables.restore(meta.get("tables", ()), snapshot.arrays)
        except ValueError as error:
            raise SnapshotError(f"the embedding tables are damaged: {error}") from error
        self._accumulated_rows.restore(snapshot.arrays)

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` if what must always hold does not."""
        assert self._version >= self._updater.iterations, "an update without a version"
        steps, gathered = self._steps, self._accumulator
        if steps.capacity is None:
            assert not steps.holders, "a step permit in a mode without"
            assert not steps.filled, "a gradient that is not applied in a mode without"
            return
        assert steps.filled < steps.capacity, "a complete update was not made"
        assert len(steps.holders) + steps.filled <= steps.capacity, "too many step permits"
        stray = [task for task in steps.holders if not self._applied.has_lease(task)]
        assert not stray, f"a step permit without a lease: {stray}"
        if gathered is not None:
            assert (gathered.records > 0) == (steps.filled > 0), "accumulated gradients miscounted"

    def _named_arrays(self) -> Iterator[tuple[str, Array]]:
        """Everything that a snapshot holds of arrays."""
        groups: dict[str, Arenas] = {"values": self._values.arenas}
        groups |= {f"slots/{name}": slot for name, slot in self._updater.slots.items()}
        if self._accumulator and self._accumulator.records:
            groups |= self._accumulator.groups()
        for group, arenas in groups.items():
            for key, array in arenas.items():
                yield f"{group}/{key}", array

    def _own_arrays(self) -> None:
        """Before anything changes: snapshots keep what they hold."""
        gathered = self._accumulator.groups() if self._accumulator else {}
        groups = (self._values.arenas, *self._updater.slots.values(), *gathered.values())
        self._views.preserve(array for arenas in groups for array in arenas.values())

    # --- inside ----------------------------------------------------------------------------

    def _put(
        self, push: GradientPush, gradient: Arenas, state: Arenas | None, rows: RowGradients
    ) -> bool:
        """Apply or gather one gradient; say whether a new version came of it."""
        # First what may fail: copying what was lent, and making rows, changes no values.
        self._own_arrays()
        found = self._tables.resolve(rows) if self._accumulator is None else []
        if self._accumulator is not None:
            self._accumulated_rows.add(rows, self._accumulator.weight(push.records))
        complete = self._steps.fill(push.task)
        if self._local:
            self._updater.add(self._values.trainable, gradient, push.minibatches)
            if state:
                self._values.move_state(state, 1.0)
            self._next_version(push.minibatches)
        elif self._accumulator is None:
            self._update(gradient, state, rows=found, squares=push.squares)
        else:
            self._accumulator.add(gradient, state, push.records)
            if complete:
                self._join()
        return complete

    def _join(self) -> None:
        joined = self._accumulator
        assert joined is not None, "only a joined update can be incomplete"
        rows = self._tables.resolve(self._accumulated_rows.joined())
        self._update(
            joined.gradient, joined.state, joined.gradient_scale, joined.state_scale, rows=rows
        )
        joined.start_over()
        self._accumulated_rows.start_over()

    def _update(
        self,
        gradient: Arenas,
        state: Arenas | None,
        gradient_scale: float = 1.0,
        state_scale: float = 1.0,
        *,
        rows: Sequence[RowUpdate] = (),
        squares: tuple[float, ...] = (),
    ) -> None:
        self._updater.apply(self._values.trainable, gradient, gradient_scale, rows, squares)
        if state:
            self._values.move_state(state, state_scale)
        self._next_version()

    def _next_version(self, updates: int = 1) -> None:
        self._version = Version(self._version + updates)
        self._openings += 1
        self._steps.next_version()

    def _is_stale(self, staleness: int) -> bool:
        if staleness < 0:  # computed from a version that a restart has undone
            return True
        match self.mode:
            case Async():
                return False
            case Bounded(max_staleness):
                return staleness > max_staleness
            case Sync():
                return staleness > 0

    def _end_lease(self, task: TaskKey) -> bool:
        """Whoever waits for this lease's step permit is refused now; say whether it had one."""
        self._openings += 1
        return self._steps.give_back(task)

    def _outcome(
        self, kind: PushKind, staleness: int, *, new_version: bool = False, detail: str = ""
    ) -> PushOutcome:
        self._outcomes[kind] += 1
        return PushOutcome(kind, self._version, max(staleness, 0), new_version, detail)

    def _require_values(self) -> None:
        if not self._initialized:
            raise NotInitialized("no worker has sent the initial values yet")


def check_fit(optimizer: Optimizer, layout: Layout, mode: UpdateMode) -> None:
    """Make sure that an optimizer can update the variables and tables of a model.

    Raises:
        OptimizerUnsupported: it cannot update embedding tables, or not in workers.
        ValueError: it excludes a variable from weight decay that the model does not have, or
            rows of tables would have to be updated in workers.
    """
    if layout.tables and isinstance(mode, Async) and mode.local:
        raise ValueError("embedding tables do not go with local steps")
    if layout.tables and optimizer.ema:
        raise OptimizerUnsupported(
            f"{optimizer.name}.use_ema",
            "True with embedding tables",
            "leave it out, or use keras.layers.Embedding with --embedding-threshold 0",
        )
    if isinstance(mode, Async) and mode.local and optimizer.ema:
        raise OptimizerUnsupported(
            f"{optimizer.name}.use_ema",
            "True with --local-steps: no worker sees all values that would be averaged",
            "leave it out, or train without --local-steps",
        )
    names = {v.name for v in layout.variables} | {t.name for t in layout.tables}
    if unknown := sorted(optimizer.undecayed - names):
        raise ValueError(f"excluded from weight decay, but no variable: {', '.join(unknown)}")
