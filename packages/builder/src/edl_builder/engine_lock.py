"""Builds and the cleaning of the engine keep out of each other's way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class EngineLock:
    """Builds go in together; the collector goes in alone, and waits for nobody."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Inside, no cleaning begins."""
        with self._condition:
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1

    def collect(self, collect: Callable[[], bool]) -> bool:
        """Clean, unless a build is inside; none goes in meanwhile.

        Returns:
            What ``collect`` says; true if a build is inside, whose end is the next occasion.
        """
        with self._condition:
            return collect() if not self._inside else True
