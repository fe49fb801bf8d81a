"""The index from ids to rows: an open hash table in buckets.

An id's bucket is the highest bits of its hash. Buckets grow one by one, so that no push waits for
the whole index to be rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.arithmetic import read_only
from edl_master.core.parameters.layout import Array

BUCKET_BITS = 10
"""The number of highest bits of a hashed id that select its bucket. The compiled loops contain it,
and their cache compares only their own file: after a change here, touch ``index_kernels`` too."""

BUCKETS = 1 << BUCKET_BITS
_FIRST_PLACES = 8
_FULLEST = 0.7  # beyond this, searches in a linearly probed table become long

NOT_THERE = -1

index_kernel = partial(arithmetic.kernel, module="tables.index_kernels")
"""A compiled loop over ids by name."""


class RowIndex:
    """Rows by id.

    Attributes:
        address: of the addresses of the buckets, and of their masks; for compiled loops.
    """

    def __init__(self) -> None:
        self._buckets = [_bucket(_FIRST_PLACES) for _ in range(BUCKETS)]
        self._addresses = np.array([b.ctypes.data for b in self._buckets], np.int64)
        self._masks = np.full(BUCKETS, _FIRST_PLACES - 1, np.int64)
        self._counts = np.zeros(BUCKETS, np.int64)
        self.address = self._addresses.ctypes.data, self._masks.ctypes.data

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def nbytes(self) -> int:
        return int((self._masks + 1).sum()) * 12

    def find(self, ids: Array) -> tuple[Array, int]:
        """Return the rows of ids, ``NOT_THERE`` for those without; and how many have none."""
        rows, missing = find_rows(addresses_of([self]), ids, np.array([0, ids.size]))
        return rows, int(missing[0])

    def insert(self, ids: Array, rows: Array, fresh: Array) -> int:
        """Give each id that is ``NOT_THERE`` in ``rows`` the next of ``fresh``.

        Returns:
            How many of ``fresh`` were used: a repeated id gets one row.
        """
        self._make_room(ids, rows)
        used = index_kernel("insert")(
            read_only(ids), rows, fresh, self._addresses, self._masks, self._counts
        )
        return int(used)

    def remove(self, ids: Array) -> None:
        """Forget ids."""
        index_kernel("remove")(read_only(ids), self._addresses, self._masks, self._counts)

    def _make_room(self, ids: Array, rows: Array) -> None:
        needed = self._counts.copy()
        index_kernel("count_missing")(read_only(ids), rows, needed)
        for bucket in np.flatnonzero(needed > (self._masks + 1) * _FULLEST).tolist():
            old, old_mask = self._buckets[bucket], int(self._masks[bucket])
            places = 1 << int(needed[bucket] / _FULLEST * 1.5).bit_length()
            new = _bucket(places)
            index_kernel("move_bucket")(old.ctypes.data, old_mask, new.ctypes.data, places - 1)
            self._buckets[bucket] = new
            self._addresses[bucket] = new.ctypes.data
            self._masks[bucket] = places - 1


def addresses_of(indexes: Sequence[RowIndex]) -> Array:
    """Return the addresses of the indexes of some tables, which never change, for ``find_rows``."""
    return np.array([index.address for index in indexes], np.int64).T.copy()


def find_rows(indexes: Array, ids: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the rows of ids, ``NOT_THERE`` for those without; and how many each table lacks.

    Args:
        indexes: the ``addresses_of`` the indexes of some tables.
        ids: int64, table by table.
        bounds: int64, where the ids of each table begin, and where the last ones end.
    """
    rows, missing = np.empty(ids.size, np.int32), np.empty(indexes.shape[1], np.int64)
    index_kernel("find")(read_only(ids), bounds, *indexes, rows, missing)
    return rows, missing


def first_repeated(ids: Array, bounds: Array) -> int:
    """Return the position of the first table in which an id appears twice; -1 if there is none.

    Args:
        ids: int64, table by table.
        bounds: int64, where the ids of each table begin, and where the last ones end.
    """
    most = int(np.diff(bounds).max(initial=0))
    places = np.empty(1 << (2 * most).bit_length(), np.int32)
    return int(index_kernel("first_repeated")(read_only(ids), bounds, places))


def _bucket(places: int) -> Array:
    memory = np.empty(places * 12, np.uint8)
    memory[places * 8 :].view(np.int32)[:] = NOT_THERE
    return memory
