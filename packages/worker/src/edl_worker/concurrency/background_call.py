"""One call at a time in a thread of its own, while something else is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A thread that makes one call after the other, never two at a time.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call[T]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._present: _Call[T] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether there is a call whose result nobody has taken."""
        return self._present is not None

    def keep(self, call: Callable[[], T]) -> None:
        """Make a call only when its result is asked for, and there."""
        assert self._present is None, "one call at a time"
        self._present = _Call(call)
        self._present.is_kept = True

    def begin(self, call: Callable[[], T]) -> None:
        """Make a call in the thread; the last one's result was taken."""
        assert self._present is None, "one call at a time"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._present = _Call(call)
        self._calls.put(self._present)

    def result(self) -> T:
        """Wait for the call and return, or raise, what came of it."""
        assert self._present is not None, "a call was begun"
        present, self._present = self._present, None
        if present.is_kept:
            present.make()
        present.done.wait()
        if present.error is not None:
            raise present.error
        value: T = present.value
        return value

    def drop(self, patience: Callable[[float], bool]) -> bool:
        """Wait for the call, and forget what came of it; say whether it has ended.

        One that was only kept is never made.

        Args:
            patience: given how long it has been waited, in s, says whether to wait on.
        """
        present, self._present = self._present, None
        waited_s = 0.0
        if present is None or present.is_kept:
            return True
        while not present.done.wait(_LOOK_S):
            waited_s += _LOOK_S
            if not patience(waited_s):
                return False
        return True

    def _run(self) -> None:
        while True:
            self._calls.get().make()


_LOOK_S = 0.02


class _Call(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self.is_kept = False
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        assert self._call is not None
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self._call = None  # a gradient's memory is not held longer than needed
        self.done.set()
