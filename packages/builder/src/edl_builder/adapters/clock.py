"""The clock of the service."""

from __future__ import annotations

import time


class Clock:
    """Seconds since 1970 that never go back while the service runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()
