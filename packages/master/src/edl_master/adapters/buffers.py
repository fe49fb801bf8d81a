"""Memory for payloads, used again and again."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_KEPT = 4
"""Free buffers of one size that are kept: as many calls as usually move payloads at a time."""


class Buffers:
    """Lends byte buffers; touching fresh memory for each payload would cost as much as copying it.

    A buffer holds whatever the last borrower left there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[memoryview]] = defaultdict(list)

    @contextmanager
    def at_least(self, nbytes: int) -> Iterator[memoryview]:
        """As ``lent``, for sizes that differ from call to call: few sizes are kept."""
        with self.lent(1 << max(nbytes - 1, 0).bit_length()) as buffer:
            yield buffer[:nbytes]

    @contextmanager
    def lent(self, nbytes: int) -> Iterator[memoryview]:
        """A writable buffer of exactly so many bytes, for as long as the context lasts."""
        with self._lock:
            free = self._free[nbytes]
            buffer = free.pop() if free else None
        if buffer is None:
            buffer = memoryview(np.empty(nbytes, np.uint8))  # type: ignore[arg-type]
        try:
            yield buffer
        finally:
            with self._lock:
                if len(self._free[nbytes]) < _KEPT:
                    self._free[nbytes].append(buffer)
