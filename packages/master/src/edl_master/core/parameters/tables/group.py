"""All embedding tables of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edl_master.core.parameters.arithmetic import Executor, all_finite, read_only
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.payload import Payload, PayloadError, size_of
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.parameters.tables.index import first_repeated
from edl_master.core.parameters.tables.joint_tables import JointGradient, JointTables
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.row_blocks import RowBlocks
from edl_master.core.parameters.tables.row_chunks import RowsChunk, chunks, unpack
from edl_master.core.parameters.tables.table import RowGradient, Table

_MAX_RUNS = 64
"""Requests usually name the same tables in the same order; more orders than this are forgotten."""

_NO_BYTES = np.empty(0, np.uint8)

RowsView = tuple[RowBlocks, ...]
"""The rows of all tables as they were at one moment."""


@dataclass(frozen=True, slots=True)
class JointRows:
    """Gradients of rows of successive tables of one width.

    Attributes:
        numbers: of the tables.
        ids: int64, table by table, each once in a table.
        bounds: int64, where the ids of each table begin, and where the last ones end.
        values: float32 of shape (ids, dim).
    """

    numbers: tuple[int, ...]
    ids: Array
    bounds: Array
    values: Array

    def by_table(self) -> Iterator[tuple[int, RowGradient]]:
        """Yield the number of each table, and the gradients of its rows."""
        ends = self.bounds.tolist()
        for number, start, stop in zip(self.numbers, ends, ends[1:], strict=False):
            yield number, RowGradient(self.ids[start:stop], self.values[start:stop])


RowGradients = Sequence[JointRows]
"""Gradients of rows of all tables that a push names."""


@dataclass(frozen=True, slots=True)
class _TableOrder:
    """The tables that a request names, in its order.

    Attributes:
        row_nbytes: of each table.
        runs: the positions of the first table and after the last one of each run of equal width.
    """

    row_nbytes: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """Some rows of a table.

    Attributes:
        ids: int64.
        rows: float32 of shape (ids, dim).
        next: ``start`` of the next call; None at the end.
    """

    ids: Array
    rows: Array
    next: int | None


class Tables:
    """The tables of one layout, on this server."""

    def __init__(
        self,
        specs: Sequence[TableSpec],
        slots: tuple[float, ...],
        executor: Executor | None = None,
    ) -> None:
        """Make empty tables.

        Args:
            specs: what they are.
            slots: initial values of the slots that the optimizer uses.
            executor: runs parts of an update at the same time.
        """
        self._executor = executor
        self._all = tuple(Table(spec, slots) for spec in specs)
        self._joint: dict[tuple[int, ...], JointTables] = {}
        self._orders: dict[tuple[int, ...], _TableOrder] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Table:
        return self._all[number]

    def rows(self) -> dict[str, int]:
        """Return how many rows each table has."""
        return {table.spec.name: len(table) for table in self._all}

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._all)

    # --- reading ---------------------------------------------------------------------------

    def nbytes_of(self, wanted: RowIds | RowPayload) -> int:
        """Return the bytes of the rows that are asked for.

        Raises:
            PayloadError: there is no such table, or one appears twice.
        """
        return sum(map(mul, wanted.counts, self._order(wanted.tables).row_nbytes))

    def read(self, wanted: RowIds, out: memoryview, view: RowsView | None = None) -> None:
        """Copy rows to a buffer, table by table.

        Args:
            wanted: ids may repeat.
            out: of ``nbytes_of(wanted)``.
            view: read from this view; None: the rows as they are.

        Raises:
            PayloadError: as ``nbytes_of``; or ids or ``out`` have another size.
        """
        if out.nbytes != (expected := self.nbytes_of(wanted)):
            raise PayloadError(f"the buffer for rows must have {expected} bytes, not {out.nbytes}")
        data = _array(out).view(np.float32)
        for numbers, ids, bounds in self._runs(wanted):
            dim = self._all[numbers[0]].spec.dim
            size = ids.size * dim
            views = None if view is None else [view[number] for number in numbers]
            rows = data[:size].reshape(-1, dim)
            self._joint_tables(numbers).read(ids, bounds, rows, views)
            data = data[size:]

    def take_view(self) -> RowsView:
        """Return a view of all rows as they are now."""
        return tuple(table.take_view() for table in self._all)

    def scan(self, table: int, view: RowsView, start: int, most: int) -> ScannedRows:
        """Return some of the rows of a view, without their slots.

        Args:
            table: its number.
            view: of all tables.
            start: 0, or ``next`` of the previous result.
            most: how many row numbers to visit.

        Raises:
            PayloadError: there is no such table.
        """
        self._order((table,))
        blocks, spec = view[table], self._all[table].spec
        start = min(start, blocks.limit)
        stop = min(start + most, blocks.limit)
        ids, _, rows = blocks.collect(start, stop, spec.dim)
        return ScannedRows(ids, rows, stop if stop < blocks.limit else None)

    # --- changing --------------------------------------------------------------------------

    def gradients(self, payload: RowPayload) -> RowGradients:
        """Return the gradients of rows, without a copy.

        Raises:
            PayloadError: a size is wrong, or a table is unknown or appears twice.
        """
        expected, size = self.nbytes_of(payload), size_of(payload.values)
        if size != expected:
            raise PayloadError(f"these gradients of rows must have {expected} bytes, not {size}")
        data = read_only(_array(payload.values).view(np.float32))
        found = []
        for numbers, ids, bounds in self._runs(payload):
            dim = self._all[numbers[0]].spec.dim
            values, data = data[: ids.size * dim].reshape(-1, dim), data[ids.size * dim :]
            found.append(JointRows(numbers, ids, bounds, values))
        return found

    def not_finite(self, gradients: RowGradients) -> str:
        """Return the name of the first table with an infinity or NaN, or an empty string."""
        if all_finite([rows.values.reshape(-1) for rows in gradients], self._executor):
            return ""
        return next(
            self._all[number].spec.name
            for rows in gradients
            for number, gradient in rows.by_table()
            if not all_finite([gradient.values.reshape(-1)], self._executor)
        )

    def resolve(self, gradients: RowGradients) -> list[JointGradient]:
        """Find or make the rows of all gradients; the model's values do not change.

        Raises:
            PayloadError: an id appears twice.
            MemoryError: there is no room for more rows.
        """
        return [
            self._joint_tables(rows.numbers).resolve(rows.ids, rows.bounds, rows.values)
            for rows in gradients
        ]

    def check_unique(self, gradients: RowGradients) -> None:
        """Check that each id appears once in its table.

        Raises:
            PayloadError: one does not.
        """
        for rows in gradients:
            if (twice := first_repeated(rows.ids, rows.bounds)) >= 0:
                name = self._all[rows.numbers[twice]].spec.name
                raise PayloadError(f"an id appears twice among the rows of table {name!r}")

    def put(self, payload: RowPayload) -> None:
        """Give rows initial values.

        Raises:
            PayloadError: a size is wrong, an id appears twice, or there is no such table.
        """
        given = self.gradients(payload)
        self.check_unique(given)
        for rows in given:
            for number, part in rows.by_table():
                self._all[number].put(part.ids, part.values)

    def join(self, gradients: Mapping[int, RowGradient]) -> RowGradients:
        """Return gradients by number of their table, those of equal width together."""
        order = sorted(gradients, key=lambda number: (self._all[number].spec.dim, number))
        found = []
        for _, run in groupby(order, lambda number: self._all[number].spec.dim):
            numbers = tuple(run)
            parts = [gradients[number] for number in numbers]
            ids = np.concatenate([part.ids for part in parts])
            bounds = np.cumsum([0, *(part.ids.size for part in parts)])
            values = np.concatenate([part.values for part in parts])
            found.append(JointRows(numbers, ids, bounds, values))
        return found

    # --- snapshots -------------------------------------------------------------------------

    def describe(self) -> list[dict[str, Any]]:
        """Return what a snapshot holds of the tables besides arrays."""
        return [{"spec": table.spec.describe(), **table.describe()} for table in self._all]

    def arrays(self) -> dict[str, Array | RowsChunk]:
        """Return the arrays of a snapshot; rows are copied when they are written."""
        found: dict[str, Array | RowsChunk] = {}
        for number, table in enumerate(self._all):
            for at, chunk in enumerate(chunks(table.take_view())):
                found[f"tables/{number}/rows/{at}"] = chunk
            if (counters := table.counters()) is not None:
                found[f"tables/{number}/admission"] = counters.copy()
        return found

    def restore(
        self, described: Sequence[Mapping[str, Any]], arrays: Mapping[str, ArrayLike]
    ) -> None:
        """Restore what ``describe`` and ``arrays`` returned.

        Raises:
            ValueError: rows do not fit.
        """
        for number, (table, state) in enumerate(zip(self._all, described, strict=True)):
            prefix = f"tables/{number}/rows/"
            for name in arrays:
                if name.startswith(prefix):
                    ids, used, rows = unpack(np.asarray(arrays[name]), table.width)
                    table.put(ids, rows, used)
            table.restore(state, arrays.get(f"tables/{number}/admission"))

    # --- inside ----------------------------------------------------------------------------

    def _runs(self, wanted: RowIds | RowPayload) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
        """Yield runs of tables of one width: their numbers, all ids, and where each one's are."""
        order = self._order(wanted.tables)
        if size_of(wanted.ids) != 8 * sum(wanted.counts):
            raise PayloadError(f"{size_of(wanted.ids)} bytes are not {sum(wanted.counts)} ids")
        ids = read_only(_array(wanted.ids).view(np.int64))
        bounds = np.cumsum((0, *wanted.counts))
        for first, last in order.runs:
            start, stop = bounds[first], bounds[last]
            yield wanted.tables[first:last], ids[start:stop], bounds[first : last + 1] - start

    def _order(self, tables: tuple[int, ...]) -> _TableOrder:
        """Return the widths of the tables that a request names.

        Raises:
            PayloadError: there is no such table, or one appears twice.
        """
        if (known := self._orders.get(tables)) is not None:
            return known
        for number in tables:
            if not 0 <= number < len(self._all):
                raise PayloadError(f"there is no embedding table {number}")
            if tables.count(number) > 1:
                raise PayloadError(f"table {number} appears twice")
        specs = [self._all[number].spec for number in tables]
        ends = [at for at in range(1, len(specs)) if specs[at].dim != specs[at - 1].dim]
        bounds = [0, *ends, len(specs)] if specs else []
        order = _TableOrder(tuple(spec.row_nbytes for spec in specs), tuple(pairwise(bounds)))
        if len(self._orders) >= _MAX_RUNS:
            self._orders.clear()
        self._orders[tables] = order
        return order

    def _joint_tables(self, numbers: tuple[int, ...]) -> JointTables:
        if numbers not in self._joint:
            if len(self._joint) >= _MAX_RUNS:
                self._joint.clear()
            self._joint[numbers] = JointTables([self._all[number] for number in numbers])
        return self._joint[numbers]


def _array(payload: Payload) -> Array:
    """Return the bytes of a payload."""
    return np.frombuffer(payload, np.uint8) if size_of(payload) else _NO_BYTES
