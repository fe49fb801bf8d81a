"""The clock of the service."""

from __future__ import annotations

import time


class Clock:
    """A clock of seconds since 1970 that never goes back while the service runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()
