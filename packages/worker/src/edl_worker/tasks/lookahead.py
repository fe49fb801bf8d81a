"""Iterators that read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookahead(Generic[T]):
    """An iterator that is one element ahead; its methods raise what the source raises."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._held: list[T] = []
        self._ended = False

    def has_next(self) -> bool:
        """Whether there is another element; reads it."""
        if not self._held and not self._ended:
            try:
                self._held.append(next(self._source))
            except StopIteration:
                self._ended = True
        return bool(self._held)

    def take(self) -> T | None:
        """Return the next element, or None at the end."""
        return self._held.pop() if self.has_next() else None

    def close(self) -> None:
        """Close the source; nothing comes any more."""
        self._ended = True
        self._held.clear()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


class SlidingWindow(Generic[T]):
    """The elements of a source by number, each kept until it is dropped.

    Args:
        source: gives the elements in order.
        first: number of the first one.
    """

    def __init__(self, source: Lookahead[T], first: int) -> None:
        self._source = source
        self._first = first
        self._kept: deque[T] = deque()

    def get(self, number: int) -> T | None:
        """Return an element that was not dropped, read now if need be; None beyond the end."""
        assert number >= self._first, "this one was dropped"
        while number >= self.read:
            element = self._source.take()
            if element is None:
                return None
            self._kept.append(element)
        return self._kept[number - self._first]

    @property
    def read(self) -> int:
        """The number of the next element to read."""
        return self._first + len(self._kept)

    def drop_before(self, number: int) -> None:
        """Drop the elements before this one."""
        while self._kept and self._first < number:
            self._kept.popleft()
            self._first += 1
