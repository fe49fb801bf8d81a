"""One embedding table: its rows, read by id and changed by gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edl_master.core.parameters.arithmetic import (
    read_only,
)
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.parameters.tables.admission import Admission
from edl_master.core.parameters.tables.index import NOT_THERE, RowIndex
from edl_master.core.parameters.tables.row_blocks import (
    MutableRowBlocks,
    RowBlocks,
    next_moment,
    previous_moment,
    row_kernel,
)


@dataclass(frozen=True, slots=True)
class RowGradient:
    """Gradients of some rows of a table.

    Attributes:
        ids: int64, each once.
        values: float32 of shape (ids, dim).
    """

    ids: Array
    values: Array


class Table:
    """The rows of one table on this server.

    Reading makes no rows: an id without one has its initial row, which is a function of the id.
    A row is made by the first gradient for it. ``JointTables`` reads and updates rows.

    Attributes:
        spec: what it is.
        slots: float32, what the slots of a new row hold.
        index: the rows by id.
        rows: their memory.
        admission: keeps rare ids out; None: every id is admitted.
        initial: seed, distribution, center and spread of a new row, for compiled loops.
    """

    def __init__(self, spec: TableSpec, slots: tuple[float, ...]) -> None:
        """Make an empty table.

        Args:
            spec: what it is.
            slots: what the optimizer's slots of a new row hold; one number for each slot.
        """
        self.spec = spec
        self.slots = np.array(slots, np.float32)
        self.index = RowIndex()
        self.rows = MutableRowBlocks(spec.dim * (1 + len(slots)))
        self.admission = Admission(spec.min_count) if spec.min_count > 1 else None
        self._now = 0
        self._swept = 0
        initial = spec.initial
        self.initial = (
            np.uint64(spec.seed),
            int(initial.distribution),
            float(initial.center),
            float(initial.spread),
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, slots and index."""
        return self.rows.nbytes + self.index.nbytes

    # --- reading ---------------------------------------------------------------------------

    def take_view(self) -> RowBlocks:
        """Return all rows as they are now; while it is held, no row is dropped."""
        return self.rows.take_view()

    # --- changing --------------------------------------------------------------------------

    def begin_update(self) -> int:
        """Return the moment of the next update of some rows."""
        self._now = next_moment(self._now)
        return self._now

    def make_missing(self, ids: Array, rows: Array) -> None:
        """Make rows for ids without one, in ``begin_update``'s moment; ``rows`` becomes theirs.

        It becomes negative where an id gets none yet. This changes no row's values.

        Raises:
            MemoryError: there is no room for more rows.
        """
        if self.admission:
            self.admission.admit(ids, rows)
        if missing := int(np.count_nonzero(rows == NOT_THERE)):
            self._make(ids, rows, rows.copy(), missing, self._now)

    def _make(self, ids: Array, rows: Array, first: Array, missing: int, now: int) -> None:
        fresh = self.rows.candidates(missing)
        # Unshared before anything is written: a row may lie in a block of a view.
        self.rows.unshare(fresh)
        self.rows.allocate(self.index.insert(ids, rows, fresh))
        blocks = self.rows
        row_kernel("make")(
            read_only(ids), rows, first, self.slots, self.spec.dim, blocks.addresses,
            blocks.shift, blocks.width, previous_moment(now), *self.initial,
        )  # fmt: skip

    def expire(self) -> None:
        """Look at a part of the rows; all have been looked at after ``max_age / 4`` pushes."""
        if not self.spec.max_age or self.rows.has_views:
            return
        n = self.rows.limit
        part = max(1024, -(-4 * n // self.spec.max_age))
        start = min(self._swept, n)
        stop = min(start + part, n)
        rows, ids = np.empty(stop - start, np.int32), np.empty(stop - start, np.int64)
        blocks = self.rows
        found = row_kernel("expire")(
            start, stop, self._now, self.spec.max_age, rows, ids,
            blocks.addresses, blocks.shift, blocks.width,
        )  # fmt: skip
        if found:
            self.index.remove(ids[:found])
            self.rows.free(rows[:found])
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
        rows, missing = self.index.find(ids)
        if missing:
            self._make(ids, rows, rows.copy(), missing, now)
        self.rows.unshare(rows)
        if used is None:
            used = np.full(ids.size, now, np.uint32)
        blocks = self.rows
        row_kernel("restore")(
            rows, read_only(used), read_only(values),
            blocks.addresses, blocks.shift, blocks.width,
        )  # fmt: skip

    # --- snapshots -------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Numbers of a row with its slots."""
        return self.rows.width

    def counters(self) -> Array | None:
        """Return how often ids without rows came; None if every id is admitted."""
        return self.admission.counters if self.admission else None

    def describe(self) -> dict[str, int]:
        """Return what a snapshot holds besides arrays."""
        added = self.admission.added if self.admission else 0
        return {"now": self._now, "swept": self._swept, "added": added}

    def restore(self, described: Mapping[str, Any], counters: Any) -> None:
        """Take up what ``describe`` gave, once the rows are there."""
        self._now, self._swept = described["now"], described["swept"]
        if self.admission and counters is not None:
            self.admission.counters[:] = np.asarray(counters)
            self.admission.added = described["added"]
