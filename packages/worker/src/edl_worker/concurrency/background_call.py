"""One call at a time in a background thread, while the caller's thread does something else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_POLL_S = 0.02


class BackgroundCall(Generic[T]):
    """A thread that makes one call after the other, never two at a time.

    Only one thread may use an object of this class: it starts a call and takes its result.

    Args:
        name: of the background thread, which starts with the first call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_PendingCall[T]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: _PendingCall[T] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether there is a call whose result has not been taken."""
        return self._pending is not None

    def defer(self, call: Callable[[], T]) -> None:
        """Make a call in the caller's thread, when ``result`` asks for it."""
        assert self._pending is None, "one call at a time"
        self._pending = _PendingCall(call)
        self._pending.is_deferred = True

    def start(self, call: Callable[[], T]) -> None:
        """Make a call in the background thread."""
        assert self._pending is None, "one call at a time"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._pending = _PendingCall(call)
        self._calls.put(self._pending)

    def result(self) -> T:
        """Wait for the call; return its result or raise its exception."""
        assert self._pending is not None, "a call was started"
        pending, self._pending = self._pending, None
        if pending.is_deferred:
            pending.make()
        pending.done.wait()
        if pending.error is not None:
            raise pending.error
        value: T = pending.value
        return value

    def discard(self, keep_waiting: Callable[[float], bool]) -> None:
        """Wait for the call and discard its result.

        A deferred call is never made.

        Args:
            keep_waiting: given the seconds waited so far, whether to wait longer.
        """
        pending, self._pending = self._pending, None
        waited_s = 0.0
        if pending is None or pending.is_deferred:
            return
        while not pending.done.wait(_POLL_S):
            waited_s += _POLL_S
            if not keep_waiting(waited_s):
                return

    def _run(self) -> None:
        while True:
            self._calls.get().make()


class _PendingCall(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self.is_deferred = False
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        assert self._call is not None
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self._call = None  # releases the memory of the gradient
        self.done.set()
