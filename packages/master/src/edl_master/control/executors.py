"""Threads for what may take a while, so that nobody who decides has to wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Act = Callable[[], None]


class SerialExecutor:
    """One thread that does one thing after the other, in the order given.

    Args:
        name: of the thread.
        on_error: told what an act raised; the next act is done all the same.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], None]) -> None:
        self._acts: queue.SimpleQueue[Act | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, act: Act) -> None:
        """Do something soon. What is given after ``close`` is never done."""
        self._acts.put(act)

    def close(self, timeout_s: float) -> bool:
        """Finish what was given and end; say whether that was done in time."""
        self._acts.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Nobody waits for this thread but ``close``, which has a deadline.
        while (act := self._acts.get()) is not None:
            try:
                act()
            except Exception as error:
                self._on_error(error)


class Latest:
    """Does the newest of what is given, one at a time; what is overtaken is never done.

    For checkpoints: when the disk is slower than training, the one in the middle is worth
    nothing, and keeping it would cost memory.
    """

    def __init__(self, lane: SerialExecutor) -> None:
        self._lane = lane
        self._lock = threading.Lock()
        self._next: Act | None = None

    def do(self, act: Act) -> None:
        """Do this unless something newer comes before its turn."""
        with self._lock:
            waiting, self._next = self._next is not None, act
        if not waiting:
            self._lane.do(self._turn)

    def _turn(self) -> None:
        with self._lock:
            act, self._next = self._next, None
        assert act is not None
        act()
