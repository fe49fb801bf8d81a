"""A request to stop, and bells that end what blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edl_builder.core.names import Reason, Refused


class StopSignal:
    """Set once, by whoever wants the work to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._set = False

    @property
    def requested(self) -> bool:
        return self._set

    def check(self) -> None:
        """Raises: Refused: CANCELLED, once it is set."""
        if self._set:
            raise Refused(Reason.CANCELLED, "the build was cancelled")

    def on_stop(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` when it is set; returns what takes it off again."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            if not self._set:
                self._bells[number] = ring
                return lambda: self._take_off(number)
        ring()
        return lambda: None

    def _take_off(self, number: int) -> None:
        with self._lock:
            self._bells.pop(number, None)

    def set(self) -> None:
        """Ask the work to end."""
        with self._lock:
            self._set = True
            bells, self._bells = list(self._bells.values()), {}
        for ring in bells:
            ring()
