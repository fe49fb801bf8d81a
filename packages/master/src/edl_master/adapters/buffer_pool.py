"""A pool of buffers for payloads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_KEPT = 4
"""Free buffers of one size that are kept: as many calls as usually move payloads at a time."""

IDLE_S = 5.0
"""An unused buffer is returned to the system after this time, or up to twice as much."""


class BufferPool:
    """Reuses byte buffers; touching fresh memory for each payload would cost as much as copying it.

    A buffer holds whatever the last borrower left there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[memoryview]] = defaultdict(list)
        self._fewest: dict[int, int] = {}
        self._trimmed_at = float("-inf")

    @contextmanager
    def borrow_at_least(self, nbytes: int) -> Iterator[memoryview]:
        """Lend a buffer like ``borrow``; the pool rounds up sizes that vary from call to call."""
        with self.borrow(1 << max(nbytes - 1, 0).bit_length()) as buffer:
            yield buffer[:nbytes]

    @contextmanager
    def borrow(self, nbytes: int) -> Iterator[memoryview]:
        """Lend a writable buffer of exactly ``nbytes`` bytes until the context ends."""
        with self._lock:
            free = self._free[nbytes]
            buffer = free.pop() if free else None
            self._fewest[nbytes] = min(len(free), self._fewest.get(nbytes, 0))
        if buffer is None:
            buffer = np.empty(nbytes, np.uint8).data
        try:
            yield buffer
        finally:
            with self._lock:
                if len(self._free[nbytes]) < _KEPT:
                    self._free[nbytes].append(buffer)

    def trim(self, now: float) -> None:
        """Return buffers to the system that were not needed since the last call.

        Args:
            now: seconds of a monotonic clock.
        """
        if now - self._trimmed_at < IDLE_S:
            return
        self._trimmed_at = now
        with self._lock:
            for nbytes, free in self._free.items():
                # As many as were free all the time.
                del free[: self._fewest.get(nbytes, 0)]
                self._fewest[nbytes] = len(free)

    @property
    def free_nbytes(self) -> int:
        """Bytes of the buffers that are not in use."""
        with self._lock:
            return sum(nbytes * len(free) for nbytes, free in self._free.items())
