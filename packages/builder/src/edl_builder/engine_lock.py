"""Mutual exclusion between builds and the pruning of the engine's images."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class EngineLock:
    """Shared by builds, exclusive for pruning; pruning never waits for a build."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._builds = 0

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """While a build runs in this context, no pruning starts."""
        with self._condition:
            self._builds += 1
        try:
            yield
        finally:
            with self._condition:
                self._builds -= 1

    def prune(self, prune: Callable[[], bool]) -> bool:
        """Prune unless a build runs; no build starts meanwhile.

        Returns:
            The result of ``prune``; true if a build runs, at whose end pruning is tried again.
        """
        with self._condition:
            return prune() if not self._builds else True
