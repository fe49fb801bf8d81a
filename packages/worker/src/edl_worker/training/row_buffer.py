"""The receive buffer of embedding rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edl_proto.transport.direct_connection import FrameError
from edl_worker.core.exchange import TableRows
from edl_worker.core.job import WirePrecision
from edl_worker.core.row_engine import RowArray, RowRequest

_ALIGNMENT_BYTES = 64
"""TensorFlow copies memory that is not aligned to so many bytes."""


class RowReceiveBuffer:
    """A buffer that receives the rows that one minibatch needs.

    The buffer is double: a step may compute on its rows while those of the next step arrive.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._next = np.empty(0, np.uint8)
        self._for: RowRequest | None = None
        self._precision = WirePrecision.FLOAT32

    def open(self, wanted: RowRequest | None) -> Callable[[int], memoryview]:
        """Prepare to receive rows.

        Returns:
            From the number of bytes to the memory for them; the same memory each time.
        """
        expected = 0 if wanted is None else wanted.nbytes
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

    def rows(self, wanted: RowRequest) -> RowArray:
        """Return the received rows as float32, one after the other."""
        memory = self._memory[: wanted.nbytes]
        if self._precision == WirePrecision.FLOAT32:
            return memory.view(np.float32)
        return _dequantize(memory[: wanted.nbytes // 2].view(np.uint16), self._precision)


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
    return wanted.tables, np.ascontiguousarray(wanted.ids).view(np.uint8).data
