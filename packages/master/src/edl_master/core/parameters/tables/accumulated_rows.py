"""Gradients of rows that wait for the others of one synchronous update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edl_master.core.parameters.arithmetic import read_only
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.group import RowGradients
from edl_master.core.parameters.tables.index import index_kernel
from edl_master.core.parameters.tables.table import RowGradient


class AccumulatedRows:
    """Gradients of rows for one synchronous update, merged when it is complete."""

    def __init__(self, tables: int) -> None:
        self._parts: list[list[RowGradient]] = [[] for _ in range(tables)]

    def add(self, gradients: RowGradients, weight: float) -> None:
        """Add ``weight`` times these gradients; they are copied."""
        for rows in gradients:
            for number, gradient in rows.by_table():
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
