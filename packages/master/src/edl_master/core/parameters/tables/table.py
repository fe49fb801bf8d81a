"""One embedding table: its rows, read by id and changed by gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edl_master.core.parameters.arithmetic import (
    Executor,
    read_only,
    run_all,
)
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.parameters.tables.admission import Admission
from edl_master.core.parameters.tables.index import RowIndex
from edl_master.core.parameters.tables.row_blocks import (
    MutableRowBlocks,
    RowBlocks,
    next_moment,
    previous_moment,
    row_kernel,
)

_BYTES_AT_A_TIME = 1 << 19
"""Bytes of rows with slots that are gathered, updated and scattered at once, in the cache."""

_WORTH_THREADS = 1 << 22
"""Bytes of rows with slots from which on several threads are faster than one."""

Update = Callable[[Array, Array, list[Array]], None]
"""Changes values (flat) by a gradient (flat) and the slots of the values, in place."""


@dataclass(frozen=True, slots=True)
class RowGradient:
    """Gradients of some rows of a table.

    Attributes:
        ids: int64, each once.
        values: float32 of shape (ids, dim).
    """

    ids: Array
    values: Array


@dataclass(frozen=True, slots=True)
class ResolvedGradient:
    """A gradient whose rows were found or made.

    Attributes:
        rows: their numbers.
        values: the gradient's, as many.
    """

    rows: Array
    values: Array


class Table:
    """The rows of one table on this server.

    Reading makes no rows: an id without one has its initial row, which is a function of the id.
    A row is made by the first gradient for it.
    """

    def __init__(
        self, spec: TableSpec, slots: tuple[float, ...], executor: Executor | None = None
    ) -> None:
        """Make an empty table.

        Args:
            spec: what it is.
            slots: what the optimizer's slots of a new row hold; one number for each slot.
            executor: runs parts of an update at the same time.
        """
        self.spec = spec
        self._executor = executor
        self._slots = np.array(slots, np.float32)
        self._index = RowIndex()
        self._rows = MutableRowBlocks(spec.dim * (1 + len(slots)))
        self._admission = Admission(spec.min_count) if spec.min_count > 1 else None
        self._now = 0
        self._swept = 0
        initial = spec.initial
        self._initial = (
            np.uint64(spec.seed),
            int(initial.distribution),
            float(initial.center),
            float(initial.spread),
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, slots and index."""
        return self._rows.nbytes + self._index.nbytes

    # --- reading ---------------------------------------------------------------------------

    def read(self, ids: Array, out: Array, view: RowBlocks | None = None) -> None:
        """Copy the rows of ids.

        Args:
            ids: int64, also repeated.
            out: float32 of shape (ids, dim), written to.
            view: read from this view; None: the rows as they are.
        """
        rows, _ = self._index.find(ids)
        blocks = view or self._rows
        row_kernel("read")(
            read_only(ids), rows, out, blocks.addresses, blocks.limit, view is not None,
            blocks.shift, blocks.width, *self._initial,
        )  # fmt: skip

    def take_view(self) -> RowBlocks:
        """Return all rows as they are now; while it is held, no row is dropped."""
        return self._rows.take_view()

    # --- changing --------------------------------------------------------------------------

    def resolve(self, gradient: RowGradient) -> ResolvedGradient:
        """Find the rows of a gradient, and make those that are missing.

        This changes no row's values: what fails in between leaves the model as it was.

        Raises:
            PayloadError: an id appears twice.
            MemoryError: there is no room for more rows.
        """
        ids = gradient.ids
        now = self._now = next_moment(self._now)
        rows, missing = self._index.find(ids)
        if missing and self._admission:
            self._admission.admit(ids, rows)
            missing = int(np.count_nonzero(rows == -1))
        first = rows.copy()
        if missing:
            self._make(ids, rows, first, missing, now)
        self._rows.unshare(rows)
        blocks = self._rows
        if row_kernel("stamp")(rows, blocks.addresses, blocks.shift, blocks.width, now):
            raise PayloadError(f"an id appears twice in a gradient of table {self.spec.name!r}")
        if self._admission and (rows < 0).any():
            kept = rows >= 0
            return ResolvedGradient(rows[kept], gradient.values[kept])
        return ResolvedGradient(rows, gradient.values)

    def _make(self, ids: Array, rows: Array, first: Array, missing: int, now: int) -> None:
        fresh = self._rows.candidates(missing)
        # Unshared before anything is written: a row may lie in a block of a view.
        self._rows.unshare(fresh)
        self._rows.allocate(self._index.insert(ids, rows, fresh))
        blocks = self._rows
        row_kernel("make")(
            read_only(ids), rows, first, self._slots, self.spec.dim, blocks.addresses,
            blocks.shift, blocks.width, previous_moment(now), *self._initial,
        )  # fmt: skip

    def apply(self, gradient: ResolvedGradient, update: Update) -> None:
        """Update rows, then drop some that are too old."""
        self._rows.unshare(gradient.rows)  # a view may have been taken since they were resolved
        dim, depth = self.spec.dim, 1 + self._slots.size
        row_nbytes = 4 * self._rows.width
        step = max(1, _BYTES_AT_A_TIME // row_nbytes)
        is_large = gradient.rows.size * row_nbytes >= _WORTH_THREADS

        def one(start: int) -> None:
            rows = gradient.rows[start : start + step]
            state = np.empty((depth, rows.size, dim), np.float32)
            place = self._rows.addresses, self._rows.shift, self._rows.width
            row_kernel("gather")(rows, state, *place)
            flat = [part.reshape(-1) for part in state]
            values = gradient.values[start : start + step].reshape(-1)
            update(flat[0], read_only(values), flat[1:])
            row_kernel("scatter")(rows, state, *place)

        run_all(
            [partial(one, start) for start in range(0, gradient.rows.size, step)],
            self._executor if is_large else None,
        )
        if self.spec.max_age:
            self._expire()

    def _expire(self) -> None:
        """Look at a part of the rows; all have been looked at after ``max_age / 4`` pushes."""
        if self._rows.has_views:
            return
        n = self._rows.limit
        part = max(1024, -(-4 * n // self.spec.max_age))
        start = min(self._swept, n)
        stop = min(start + part, n)
        rows, ids = np.empty(stop - start, np.int32), np.empty(stop - start, np.int64)
        blocks = self._rows
        found = row_kernel("expire")(
            start, stop, self._now, self.spec.max_age, rows, ids,
            blocks.addresses, blocks.shift, blocks.width,
        )  # fmt: skip
        if found:
            self._index.remove(ids[:found])
            self._rows.free(rows[:found])
        self._swept = stop if stop < n else 0

    def put(self, ids: Array, values: Array, used: Array | None = None) -> None:
        """Give rows these values, whatever they were; for initial values and snapshots.

        Args:
            ids: int64, each once.
            values: float32 of shape (ids, dim), or with slots (ids, width).
            used: when they were last used; None: now.

        Raises:
            MemoryError: there is no room for more rows.
        """
        if used is None:  # a moment of its own, unlike that of any push
            self._now = next_moment(self._now)
        now = max(self._now, 1)
        rows, missing = self._index.find(ids)
        if missing:
            self._make(ids, rows, rows.copy(), missing, now)
        self._rows.unshare(rows)
        if used is None:
            used = np.full(ids.size, now, np.uint32)
        blocks = self._rows
        row_kernel("restore")(
            rows, read_only(used), read_only(values),
            blocks.addresses, blocks.shift, blocks.width,
        )  # fmt: skip

    # --- snapshots -------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Numbers of a row with its slots."""
        return self._rows.width

    def counters(self) -> Array | None:
        """Return how often ids without rows came; None if every id is admitted."""
        return self._admission.counters if self._admission else None

    def describe(self) -> dict[str, int]:
        """Return what a snapshot holds besides arrays."""
        added = self._admission.added if self._admission else 0
        return {"now": self._now, "swept": self._swept, "added": added}

    def restore(self, described: Mapping[str, Any], counters: Any) -> None:
        """Take up what ``describe`` gave, once the rows are there."""
        self._now, self._swept = described["now"], described["swept"]
        if self._admission and counters is not None:
            self._admission.counters[:] = np.asarray(counters)
            self._admission.added = described["added"]
