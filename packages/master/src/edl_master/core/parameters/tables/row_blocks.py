"""The memory of rows: blocks, which views share until a block is changed (copy on write)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial

import numpy as np

from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.layout import Array

row_kernel = partial(arithmetic.kernel, module="tables.row_kernels")
"""A compiled loop over rows by name."""

BLOCK_BYTES = 1 << 17
"""Size of a block, about: small enough to copy at once, large enough for a short list."""

CLOCK = (1 << 32) - 1
"""Moments count updates: from 1 to this, and then from 1 again; 0 marks a free row."""

_MIN_SHIFT, _MAX_SHIFT = 4, 12
_MAX_ROWS = (1 << 31) - 1


def next_moment(now: int) -> int:
    """Return the moment that follows ``now``."""
    return now % CLOCK + 1


def previous_moment(now: int) -> int:
    """Return the moment before ``now``."""
    return (now - 2) % CLOCK + 1


class RowsExhausted(MemoryError):
    """A table has as many rows as one server can number."""


class RowBlocks:
    """The rows of a table at one moment.

    Attributes:
        addresses: of the blocks.
        address: of ``addresses``; for compiled loops.
        limit: rows at this number and beyond do not belong to it.
        shift: a block has ``2^shift`` rows.
        width: float32 numbers of a row, slots included.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        per_row = 4 * width + 12
        self.shift = min(max((BLOCK_BYTES // per_row).bit_length() - 1, _MIN_SHIFT), _MAX_SHIFT)
        self.blocks: list[Array] = []
        self.addresses = np.zeros(16, np.int64)
        self.address = self.addresses.ctypes.data
        self.limit = 0

    def ranges(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of at most ``rows`` row numbers that cover all of them."""
        for start in range(0, self.limit, rows):
            yield start, min(start + rows, self.limit)

    def collect(self, start: int, stop: int, columns: int) -> tuple[Array, Array, Array]:
        """Return ids, moments of last use and first ``columns`` numbers of the rows in a range."""
        n = stop - start
        ids, used = np.empty(n, np.int64), np.empty(n, np.uint32)
        out = np.empty((n, columns), np.float32)
        found = row_kernel("collect")(
            start, stop, ids, used, out, self.addresses, self.shift, self.width
        )
        return ids[:found], used[:found], out[:found]


class MutableRowBlocks(RowBlocks):
    """Rows that change; the numbers of freed rows are used again."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._shared = np.zeros(16, np.bool_)
        self.may_share = False
        self._views: weakref.WeakSet[RowBlocks] = weakref.WeakSet()
        self._free = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def has_views(self) -> bool:
        """Whether a view is still in use."""
        return bool(self._views)

    def take_view(self) -> RowBlocks:
        """Return the rows as they are now. They stay so: a block is copied before it is changed."""
        view = RowBlocks(self.width)
        view.blocks = list(self.blocks)
        view.addresses = self.addresses.copy()
        view.address = view.addresses.ctypes.data
        view.limit = self.limit
        self._shared[: len(self.blocks)] = True
        self.may_share = True
        self._views.add(view)
        return view

    def unshare(self, rows: Array) -> None:
        """Make the blocks of these rows exclusive to the store; negative rows are ignored."""
        if not self.may_share:
            return
        if not self._views:
            self._shared[:] = False
            self.may_share = False
            return
        touched = np.zeros(len(self.blocks), np.bool_)
        row_kernel("touch")(rows, self.shift, touched)
        for at in np.flatnonzero(touched & self._shared[: len(self.blocks)]).tolist():
            self.blocks[at] = self.blocks[at].copy()
            self.addresses[at] = self.blocks[at].ctypes.data
            self._shared[at] = False

    def candidates(self, n: int) -> Array:
        """Return numbers (int32) of ``n`` free rows. They stay free until ``allocate``.

        Raises:
            RowsExhausted: there are no more.
        """
        if n <= self._free.size:
            return self._free[self._free.size - n :][::-1].copy()
        new = n - self._free.size
        if self.limit + new > _MAX_ROWS:
            raise RowsExhausted(f"a server can hold at most {_MAX_ROWS} rows of a table")
        numbers = np.arange(self.limit, self.limit + new, dtype=np.int32)
        while len(self.blocks) << self.shift < self.limit + new:
            self._grow()
        return np.concatenate([self._free[::-1], numbers])

    def allocate(self, n: int) -> None:
        """Mark the first ``n`` rows that ``candidates`` returned as in use."""
        from_free = min(n, self._free.size)
        self._free = self._free[: self._free.size - from_free]
        self.limit += n - from_free

    def free(self, rows: Array) -> None:
        """Mark rows (int32) as free."""
        self._free = np.concatenate([self._free, rows])

    def _grow(self) -> None:
        n = len(self.blocks)
        if n == self.addresses.size:
            self.addresses = np.resize(self.addresses, 2 * n)
            self.address = self.addresses.ctypes.data
            self._shared = np.concatenate([self._shared, np.zeros(n, np.bool_)])
        block = np.zeros((4 * self.width + 12) << self.shift, np.uint8)
        self.blocks.append(block)
        self.addresses[n] = block.ctypes.data
        self._shared[n] = False
