"""Tables of one width, whose rows are read and updated in one pass.

A model may have dozens of tables, one for each of its features. Compiled loops go through the rows
of all of them in one call, so that their number does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from edl_master.core.parameters.arithmetic import Executor, read_only, run_all
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.tables.index import addresses_of, find_rows
from edl_master.core.parameters.tables.row_blocks import RowBlocks, row_kernel
from edl_master.core.parameters.tables.table import Table

_BYTES_AT_A_TIME = 1 << 19
"""Bytes of rows with slots that are gathered, updated and scattered at once, in the cache."""

_WORTH_THREADS = 1 << 22
"""Bytes of rows with slots from which on several threads are faster than one."""

Update = Callable[[Array, Array, list[Array]], None]
"""Changes values (flat) by a gradient (flat) and the slots of the values, in place."""


@dataclass(frozen=True, slots=True)
class JointGradient:
    """Gradients of rows that were found or made, of several tables.

    Attributes:
        tables: of one width.
        bounds: int64, where the rows of each table begin, and where the last ones end.
        rows: int32, their numbers.
        values: float32 of shape (rows, dim), of their gradients.
    """

    tables: JointTables
    bounds: Array
    rows: Array
    values: Array

    def parts(self) -> Iterator[tuple[Table, Array]]:
        """Yield each table, and the gradients of its rows."""
        ends = self.bounds.tolist()
        for table, start, stop in zip(self.tables.all, ends, ends[1:], strict=False):
            yield table, self.values[start:stop]

    def cut(self, first: int, last: int) -> JointGradient:
        """Return the part of the tables ``first`` to ``last``, which is left out."""
        if (first, last) == (0, len(self.tables.all)):
            return self
        start, stop = self.bounds[first], self.bounds[last]
        return JointGradient(
            JointTables(self.tables.all[first:last]),
            self.bounds[first : last + 1] - start,
            self.rows[start:stop],
            self.values[start:stop],
        )


class JointTables:
    """Some tables of one width, in the order in which a request has their rows.

    Attributes:
        all: the tables.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.all = tuple(tables)
        self._indexes = addresses_of([table.index for table in tables])
        seeds, kinds, centers, spreads = zip(*(table.initial for table in tables), strict=True)
        self._initial = (
            np.array(seeds, np.uint64),
            np.array(kinds, np.int64),
            np.array(centers, np.float64),
            np.array(spreads, np.float64),
        )

    def read(
        self, ids: Array, bounds: Array, out: Array, views: Sequence[RowBlocks] | None = None
    ) -> None:
        """Copy the rows of ids.

        Args:
            ids: int64, table by table, also repeated.
            bounds: int64, where the ids of each table begin, and where the last ones end.
            out: float32 of shape (ids, dim), written to.
            views: of each table, to read from; None: the rows as they are.
        """
        rows, _ = find_rows(self._indexes, ids, bounds)
        blocks = views if views is not None else [table.rows for table in self.all]
        row_kernel("read")(
            read_only(ids), bounds, rows, out, _addresses(blocks),
            np.array([one.limit for one in blocks], np.int64), views is not None,
            blocks[0].shift, blocks[0].width, *self._initial,
        )  # fmt: skip

    def resolve(self, ids: Array, bounds: Array, values: Array) -> JointGradient:
        """Find the rows of gradients, and make those that are missing.

        This changes no row's values: what fails in between leaves the model as it was.

        Args:
            ids: int64, table by table, each once in a table.
            bounds: as in ``read``.
            values: float32 of shape (ids, dim), the gradients.

        Raises:
            PayloadError: an id appears twice.
            MemoryError: there is no room for more rows.
        """
        now = np.array([table.begin_update() for table in self.all], np.int64)
        rows, missing = find_rows(self._indexes, ids, bounds)
        for at in np.flatnonzero(missing).tolist():
            part = slice(bounds[at], bounds[at + 1])
            self.all[at].make_missing(ids[part], rows[part])
        self._unshare(rows, bounds)
        place = self.all[0].rows
        twice = row_kernel("stamp")(
            rows, bounds, self._block_addresses(), place.shift, place.width, now
        )
        if twice >= 0:
            name = self.all[twice].spec.name
            raise PayloadError(f"an id appears twice in a gradient of table {name!r}")
        kept = rows >= 0  # admission may keep some out
        if not kept.all():
            bounds = np.append(0, np.cumsum(kept))[bounds]
            rows, values = rows[kept], values[kept]
        return JointGradient(self, bounds, rows, values)

    def apply(
        self, gradient: JointGradient, update: Update, executor: Executor | None = None
    ) -> None:
        """Update rows, then drop some that are too old.

        Args:
            gradient: that ``resolve`` has returned.
            update: changes the rows.
            executor: runs parts of a large update at the same time.
        """
        rows, bounds = gradient.rows, gradient.bounds
        self._unshare(rows, bounds)  # a view may have been taken since they were resolved
        place, depth = self.all[0].rows, 1 + self.all[0].slots.size
        dim = self.all[0].spec.dim
        row_nbytes = 4 * place.width
        step = max(1, _BYTES_AT_A_TIME // row_nbytes)
        where = self._block_addresses(), place.shift, place.width

        def one(start: int) -> None:
            state = np.empty((depth, min(step, rows.size - start), dim), np.float32)
            row_kernel("gather")(rows, bounds, start, state, *where)
            flat = [part.reshape(-1) for part in state]
            values = gradient.values[start : start + step].reshape(-1)
            update(flat[0], read_only(values), flat[1:])
            row_kernel("scatter")(rows, bounds, start, state, *where)

        run_all(
            [partial(one, start) for start in range(0, rows.size, step)],
            executor if rows.size * row_nbytes >= _WORTH_THREADS else None,
        )
        for table in self.all:
            table.expire()

    def _unshare(self, rows: Array, bounds: Array) -> None:
        for at, table in enumerate(self.all):
            if table.rows.may_share:
                table.rows.unshare(rows[bounds[at] : bounds[at + 1]])

    def _block_addresses(self) -> Array:
        return _addresses([table.rows for table in self.all])


def _addresses(blocks: Sequence[RowBlocks]) -> Array:
    return np.array([one.address for one in blocks], np.int64)
