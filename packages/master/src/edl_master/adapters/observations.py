"""A platform's observations of its instances, until the master takes them."""

from __future__ import annotations

import contextlib
import queue
import threading

from edl_master.core.platform import Observation


class ObservationQueue:
    """Observations in their order, from any thread."""

    def __init__(self) -> None:
        self._seen: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._closed = threading.Event()

    def put(self, observation: Observation) -> None:
        self._seen.put(observation)

    def take(self, timeout_s: float) -> tuple[Observation, ...]:
        """Return all that is there; waits for the first, unless the queue is closed."""
        seen: list[Observation | None] = []
        with contextlib.suppress(queue.Empty):
            wait_s = 0 if self._closed.is_set() else timeout_s
            seen.append(self._seen.get(wait_s > 0, wait_s))
            while True:
                seen.append(self._seen.get_nowait())
        return tuple(observation for observation in seen if observation is not None)

    def close(self) -> None:
        """Wake all waiting threads: nothing more comes."""
        self._closed.set()
        self._seen.put(None)
