"""An iterator of which one knows whether it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookahead(Generic[T]):
    """Holds the next element ready. What the source raises, ``more`` and ``take`` raise."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._held: list[T] = []
        self._ended = False

    def more(self) -> bool:
        """Whether another element comes; reads it."""
        if not self._held and not self._ended:
            try:
                self._held.append(next(self._source))
            except StopIteration:
                self._ended = True
        return bool(self._held)

    def peek(self) -> T | None:
        """The next element, which stays; None at the end."""
        return self._held[0] if self.more() else None

    def take(self) -> T | None:
        """The next element, or None at the end."""
        return self._held.pop() if self.more() else None

    def close(self) -> None:
        """Close the source; nothing comes any more."""
        self._ended = True
        self._held.clear()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()
