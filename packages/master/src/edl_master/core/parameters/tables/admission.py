"""Keeps rare ids out of a table, in memory that does not grow with their number."""

from __future__ import annotations

import numpy as np

from edl_master.core.parameters.arithmetic import read_only
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.index import index_kernel

LINES = 4
COUNTERS = 1 << 20
_AGE_AFTER = COUNTERS // 2


class Admission:
    """Counts how often an id without a row came, in a count-min sketch of four MiB.

    Between halvings it never counts too little; where very many ids come once, it may count too
    much, and lets some in early. After each half a million counts of ids without a row all counts
    are halved: what came long ago weighs less, and the sketch never fills up.

    Attributes:
        counters: the counts; part of a snapshot.
        added: counts since the last halving; part of a snapshot.
    """

    def __init__(self, min_count: int) -> None:
        self._min_count = min_count
        self.counters: Array = np.zeros((LINES, COUNTERS), np.uint8)
        self.added = 0

    def admit(self, ids: Array, rows: Array) -> None:
        """Count ids whose row is -1; it becomes -2 where the id gets none yet."""
        self.added += int(
            index_kernel("admit")(read_only(ids), rows, self.counters, self._min_count)
        )
        if self.added >= _AGE_AFTER:
            self.counters >>= 1
            self.added //= 2
