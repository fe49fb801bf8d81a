"""All embedding tables of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edl_master.core.parameters.arithmetic import Executor, all_finite, read_only
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.payload import Payload, PayloadError, size_of
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.parameters.tables.index import index_kernel
from edl_master.core.parameters.tables.joint_tables import JointGradient, JointTables
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.row_blocks import RowBlocks
from edl_master.core.parameters.tables.row_chunks import RowsChunk, chunks, unpack
from edl_master.core.parameters.tables.table import RowGradient, Table

_MAX_RUNS = 64
"""Requests usually name the same tables in the same order; more orders than this are forgotten."""

RowsView = tuple[RowBlocks, ...]
"""The rows of all tables as they were at one moment."""

RowGradients = Mapping[int, RowGradient]
"""Gradients of rows by number of the table."""


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

    def nbytes_of(self, wanted: Sequence[RowIds]) -> int:
        """Return the bytes of the rows that are asked for.

        Raises:
            PayloadError: there is no such table, or ids are cut short.
        """
        return sum(
            self._ids(one.table, one.ids).size * self._all[one.table].spec.row_nbytes
            for one in wanted
        )

    def read(self, wanted: Sequence[RowIds], out: memoryview, view: RowsView | None = None) -> None:
        """Copy rows to a buffer, one request after the other.

        Args:
            wanted: ids may repeat.
            out: of ``nbytes_of(wanted)``.
            view: read from this view; None: the rows as they are.

        Raises:
            PayloadError: there is no such table, ids are cut short, or ``out`` has another size.
        """
        if out.nbytes != (expected := self.nbytes_of(wanted)):
            raise PayloadError(f"the buffer for rows must have {expected} bytes, not {out.nbytes}")
        data = np.frombuffer(out, np.float32) if out.nbytes else np.empty(0, np.float32)
        for numbers, ids, bounds in self._runs([(one.table, one.ids) for one in wanted]):
            dim = self._all[numbers[0]].spec.dim
            rows, data = np.split(data, [ids.size * dim])
            views = None if view is None else [view[number] for number in numbers]
            self._joint_tables(numbers).read(ids, bounds, rows.reshape(-1, dim), views)

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
        self._ids(table, b"")
        blocks, spec = view[table], self._all[table].spec
        start = min(start, blocks.limit)
        stop = min(start + most, blocks.limit)
        ids, _, rows = blocks.collect(start, stop, spec.dim)
        return ScannedRows(ids, rows, stop if stop < blocks.limit else None)

    # --- changing --------------------------------------------------------------------------

    def gradients(self, payloads: Sequence[RowPayload]) -> dict[int, RowGradient]:
        """Return the gradients of rows, without a copy.

        Raises:
            PayloadError: a size is wrong, or a table is unknown or appears twice.
        """
        found: dict[int, RowGradient] = {}
        for payload in payloads:
            if payload.table in found:
                raise PayloadError(f"table {payload.table} appears twice in a gradient")
            ids = self._ids(payload.table, payload.ids)
            found[payload.table] = RowGradient(ids, self._values(payload, ids))
        return found

    def not_finite(self, gradients: RowGradients) -> str:
        """Return the name of the first table with an infinity or NaN, or an empty string."""
        values = [gradient.values.reshape(-1) for gradient in gradients.values()]
        if not values or all_finite([np.concatenate(values)], self._executor):
            return ""
        return next(
            self._all[number].spec.name
            for number, gradient in gradients.items()
            if not all_finite([gradient.values.reshape(-1)], self._executor)
        )

    def resolve(self, gradients: RowGradients) -> list[JointGradient]:
        """Find or make the rows of all gradients; the model's values do not change.

        Raises:
            PayloadError: an id appears twice.
            MemoryError: there is no room for more rows.
        """
        by_width = sorted(gradients, key=lambda number: (self._all[number].spec.dim, number))
        by_table = [(number, gradients[number].ids) for number in by_width]
        return [
            self._joint_tables(numbers).resolve(
                ids, bounds, np.concatenate([gradients[number].values for number in numbers])
            )
            for numbers, ids, bounds in self._runs(by_table)
        ]

    def check_unique(self, payload: RowPayload) -> None:
        """Check that each id appears once.

        Raises:
            PayloadError: one does, or there is no such table.
        """
        ids = self._ids(payload.table, payload.ids)
        if has_duplicates(ids):
            name = self._all[payload.table].spec.name
            raise PayloadError(f"an id appears twice among the rows of table {name!r}")

    def put(self, payload: RowPayload) -> None:
        """Give rows initial values.

        Raises:
            PayloadError: a size is wrong, an id appears twice, or there is no such table.
        """
        ids = self._ids(payload.table, payload.ids)
        values = self._values(payload, ids)
        self.check_unique(payload)
        self._all[payload.table].put(ids, values)

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

    def _runs(
        self, wanted: Sequence[tuple[int, Payload | Array]]
    ) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
        """Yield runs of tables of one width: their numbers, all ids, and where each one's are."""
        given = [
            (n, ids if isinstance(ids, np.ndarray) else self._ids(n, ids)) for n, ids in wanted
        ]
        for _, run in groupby(given, lambda one: self._all[one[0]].spec.dim):
            numbers, ids = zip(*run, strict=True)
            bounds = np.cumsum([0, *(part.size for part in ids)])
            yield numbers, np.concatenate(ids), bounds

    def _joint_tables(self, numbers: tuple[int, ...]) -> JointTables:
        if numbers not in self._joint:
            if len(self._joint) >= _MAX_RUNS:
                self._joint.clear()
            self._joint[numbers] = JointTables([self._all[number] for number in numbers])
        return self._joint[numbers]

    def _ids(self, table: int, ids: Payload) -> Array:
        if not 0 <= table < len(self._all):
            raise PayloadError(f"there is no embedding table {table}")
        data = np.frombuffer(ids, np.uint8) if size_of(ids) else np.empty(0, np.uint8)
        if data.size % 8:
            raise PayloadError(f"{data.size} bytes are not a whole number of ids")
        return read_only(data.view(np.int64))

    def _values(self, payload: RowPayload, ids: Array) -> Array:
        spec = self._all[payload.table].spec
        size = size_of(payload.values)
        if size != ids.size * spec.row_nbytes:
            raise PayloadError(
                f"{ids.size} rows of table {spec.name!r} must have "
                f"{ids.size * spec.row_nbytes} bytes, not {size}"
            )
        flat = np.frombuffer(payload.values, np.uint8) if size else np.empty(0, np.uint8)
        return read_only(flat.view(np.float32).reshape(ids.size, spec.dim))


class AccumulatedRows:
    """Gradients of rows for one synchronous update, merged when it is complete."""

    def __init__(self, tables: int) -> None:
        self._parts: list[list[RowGradient]] = [[] for _ in range(tables)]

    def add(self, gradients: RowGradients, weight: float) -> None:
        """Add ``weight`` times these gradients; they are copied."""
        for number, gradient in gradients.items():
            self._parts[number].append(
                RowGradient(gradient.ids.copy(), gradient.values * np.float32(weight))
            )

    def merge(self) -> dict[int, RowGradient]:
        """Return the sums of the gradients of each row."""
        return {number: merge(parts) for number, parts in enumerate(self._parts) if parts}

    def reset(self) -> None:
        for accumulated in self._parts:
            accumulated.clear()

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a snapshot."""
        found = {}
        for number, gradient in self.merge().items():
            found[f"accumulated/tables/{number}/ids"] = gradient.ids
            found[f"accumulated/tables/{number}/values"] = gradient.values
        return found

    def restore(self, arrays: Mapping[str, Any]) -> None:
        for number, accumulated in enumerate(self._parts):
            name = f"accumulated/tables/{number}"
            if f"{name}/ids" in arrays:
                accumulated.append(RowGradient(arrays[f"{name}/ids"], arrays[f"{name}/values"]))


def has_duplicates(ids: Array) -> bool:
    """Return whether an id (int64) appears more than once."""
    return bool(index_kernel("has_duplicates")(read_only(ids), _places(ids.size)))


def _places(ids: int) -> Array:
    """Return an empty hash table (int32) for ``ids`` ids, at most half full in the end."""
    return np.full(1 << (2 * ids).bit_length(), -1, np.int32)


def merge(gradients: Sequence[RowGradient]) -> RowGradient:
    """Merge gradients into one for each id: the sum of all, in their order."""
    if len(gradients) == 1:
        return gradients[0]
    ids = np.concatenate([gradient.ids for gradient in gradients])
    values = np.concatenate([gradient.values for gradient in gradients])
    out_ids, out = np.empty_like(ids), np.empty_like(values)
    n = int(
        index_kernel("merge")(read_only(ids), read_only(values), out_ids, out, _places(ids.size))
    )
    return RowGradient(out_ids[:n], out[:n])
