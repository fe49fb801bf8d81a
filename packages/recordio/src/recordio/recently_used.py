"""Values that were used last, in bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """Keeps the values that were used last, and always the newest one; for all threads.

    Args:
        nbytes: the memory of all values together.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._nbytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return a value, or None if it is not kept."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: Key, value: Value, nbytes: int) -> None:
        """Keep a value of this size, and forget those that were not used for the longest."""
        with self._lock:
            if key in self._values:
                self._nbytes -= self._values.pop(key)[1]
            self._nbytes += nbytes
            self._values[key] = value, nbytes
            while self._nbytes > self._limit and len(self._values) > 1:
                self._nbytes -= self._values.popitem(last=False)[1][1]
