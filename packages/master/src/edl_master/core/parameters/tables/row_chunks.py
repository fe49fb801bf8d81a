"""A table in a snapshot: chunks of rows, each copied only when it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.tables.row_blocks import RowBlocks

CHUNK_BYTES = 32 << 20
"""Size of a chunk, about: the memory that writing a table needs."""


class RowsChunk:
    """Some rows of a table, which become one array of bytes when it is written.

    The bytes are the ids (int64), then the moments of last use (uint32), then the rows with
    their slots (float32).
    """

    def __init__(self, blocks: RowBlocks, start: int, stop: int) -> None:
        self._blocks = blocks
        self._range = start, stop

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return pack(*self._blocks.collect(*self._range, self._blocks.width))


class OwnedRows:
    """The rows of a saved chunk that one server has, in the same form; found when it is read."""

    def __init__(self, packed: Any, width: int, owned: Callable[[Array], Array]) -> None:
        self._packed, self._width, self._owned = packed, width, owned

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        ids, used, rows = unpack(np.asarray(self._packed), self._width)
        kept = self._owned(ids)
        return pack(ids[kept], used[kept], rows[kept])


def chunks(blocks: RowBlocks) -> list[RowsChunk]:
    """Return the rows of a view, in chunks."""
    per_row = 12 + 4 * blocks.width
    step = max(1, CHUNK_BYTES // per_row)
    return [RowsChunk(blocks, start, stop) for start, stop in blocks.ranges(step)]


def pack(ids: Array, used: Array, rows: Array) -> Array:
    """Return the bytes (uint8) of some rows: ids (int64), last uses (uint32), rows (float32)."""
    parts = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (ids, used, rows)]
    return np.concatenate(parts)


def unpack(chunk: Array, width: int) -> tuple[Array, Array, Array]:
    """Undo ``pack``: ids (n,), moments of last use (n,) and rows (n, width).

    Raises:
        ValueError: the bytes are not rows of this width.
    """
    data = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    n, rest = divmod(data.size, 12 + 4 * width)
    if rest:
        raise ValueError(f"{data.size} bytes are not a whole number of rows of {width} numbers")
    ids = data[: 8 * n].view(np.int64)
    used = data[8 * n : 12 * n].view(np.uint32)
    rows = data[12 * n :].view(np.float32).reshape(n, width)
    return ids, used, rows
