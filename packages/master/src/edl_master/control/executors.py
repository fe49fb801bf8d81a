"""Threads for slow work, so that no decision waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Action = Callable[[], None]


class SerialExecutor:
    """One thread that runs actions one after the other, in the order of submission.

    Args:
        name: of the thread.
        on_error: takes what an action raised; the next action runs all the same.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], None]) -> None:
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, action: Action) -> None:
        """Run an action soon. Actions submitted after ``close`` never run."""
        self._actions.put(action)

    def close(self, timeout_s: float) -> bool:
        """Finish the submitted actions and end; return whether that was done in time."""
        self._actions.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Only ``close`` waits for this thread, with a deadline.
        while (action := self._actions.get()) is not None:
            try:
                action()
            except Exception as error:
                self._on_error(error)


class CoalescingQueue:
    """Runs the newest of the submitted actions, one at a time; overtaken actions never run.

    For checkpoints: when the disk is slower than training, a checkpoint that waits is worth
    nothing once there is a newer one, and keeping both would cost memory.
    """

    def __init__(self, executor: SerialExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._next: Action | None = None

    def submit(self, action: Action) -> None:
        """Run this action unless a newer one is submitted before it starts."""
        with self._lock:
            waiting, self._next = self._next is not None, action
        if not waiting:
            self._executor.submit(self._run_next)

    def _run_next(self) -> None:
        with self._lock:
            action, self._next = self._next, None
        assert action is not None
        action()


def run_in_background(
    name: str, act: Callable[[], object], on_error: Callable[[Exception], None]
) -> None:
    """Run a function in a thread of its own; ``on_error`` takes what it raises."""

    def run_guarded() -> None:
        try:
            act()
        except Exception as error:
            on_error(error)

    threading.Thread(target=run_guarded, name=name, daemon=True).start()
