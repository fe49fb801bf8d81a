"""Cancellation of the work for a build, also while that work blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edl_builder.core.failure import BuilderError, Reason


class CancellationFlag:
    """Set once; the work checks it, or is interrupted by a callback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._set = False

    def check(self) -> None:
        """Raise BuilderError (CANCELLED) once the flag is set."""
        if self._set:
            raise BuilderError(Reason.CANCELLED, "the build was cancelled")

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` on cancellation; return a function that unregisters it."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            if not self._set:
                self._callbacks[number] = callback
                return lambda: self._remove(number)
        callback()
        return lambda: None

    def _remove(self, number: int) -> None:
        with self._lock:
            self._callbacks.pop(number, None)

    def cancel(self) -> None:
        """Cancel the work."""
        with self._lock:
            self._set = True
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()
