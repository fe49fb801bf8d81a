"""The receive buffer of embedding rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.transport.direct_connection import FrameError
from edl_worker.core.exchange import TableRows
from edl_worker.core.job import WirePrecision
from edl_worker.core.step_engine import RowRequest

_ALIGNMENT_BYTES = 64
"""TensorFlow copies memory that is not aligned to so many bytes."""


class RowReceiveBuffer:
    """A buffer that receives the rows that one minibatch needs.

    The buffer is double: a step may compute on its rows while those of the next step arrive.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self._dims = dims
        self._memory = np.empty(0, np.uint8)
        self._next = np.empty(0, np.uint8)
        self._for: RowRequest | None = None
        self._precision = WirePrecision.FLOAT32

    def nbytes(self, wanted: RowRequest | None) -> int:
        """Return the number of bytes of a minibatch's rows if they are sent as float32."""
        if wanted is None:
            return 0
        return sum(4 * d * ids.size for d, ids in zip(self._dims, wanted.ids, strict=True))

    def open(self, wanted: RowRequest | None) -> Callable[[int], memoryview]:
        """Prepare to receive rows.

        Returns:
            From the number of bytes to the memory for them; the same memory each time.
        """
        expected = self.nbytes(wanted)
        if self._next.size < expected:
            self._next = _allocate_aligned(expected + expected // 4)
        memory = self._next[:expected]

        def give(nbytes: int) -> memoryview:
            if nbytes not in (expected, expected // 2):
                raise FrameError(f"{nbytes} bytes of rows arrived, {expected} were requested")
            return memory[:nbytes].data

        return give

    def on_received(
        self, wanted: RowRequest, precision: WirePrecision = WirePrecision.FLOAT32
    ) -> None:
        """Swap the buffers: the rows for which ``open`` was called have arrived."""
        self._memory, self._next = self._next, self._memory
        self._for, self._precision = wanted, precision

    def holds(self, wanted: RowRequest) -> bool:
        return self._for is wanted

    def forget(self) -> None:
        self._for = None

    def arrays(self, wanted: RowRequest) -> list[Any]:
        """Return the received rows, float32 of shape (ids, dim) for each table."""
        is_whole = self._precision == WirePrecision.FLOAT32
        dtype = np.dtype(np.float32 if is_whole else np.uint16)
        found: list[Any] = []
        at = 0
        for dim, ids in zip(self._dims, wanted.ids, strict=True):
            end = at + dtype.itemsize * dim * ids.size
            rows = self._memory[at:end].view(dtype).reshape(ids.size, dim)
            found.append(rows if is_whole else _dequantize(rows, self._precision))
            at = end
        return found


def _dequantize(bits: npt.NDArray[np.uint16], precision: WirePrecision) -> npt.NDArray[np.float32]:
    """Return numbers of 16 bits as float32; exact."""
    if precision == WirePrecision.FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _allocate_aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(nbytes + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + nbytes]


def describe_request(wanted: RowRequest | None) -> tuple[tuple[TableRows, ...], memoryview]:
    """Return the request for rows: counts, and the ids of all tables as one payload."""
    if wanted is None:
        return (), memoryview(b"")
    tables = tuple(TableRows(number, ids.size) for number, ids in enumerate(wanted.ids))
    ids = wanted.ids[0] if len(wanted.ids) == 1 else np.concatenate(wanted.ids)
    return tables, np.ascontiguousarray(ids).view(np.uint8).data
