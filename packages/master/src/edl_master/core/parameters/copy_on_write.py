"""Views of arrays as they were at one moment, copied on write, piece by piece.

The thread that writes a snapshot to a disk reads without a lock, and no update waits for it. An
update first copies the pieces that it is about to change and that have not been read yet.

There is no lock between the two. An update preserves a piece *before* it changes the array; a
reader looks for a preserved piece *after* it has copied the piece from the array. If there is none,
no update had changed the piece when the reader finished, and the reader's copy is good. Otherwise
the reader takes the preserved piece.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from edl_master.core.parameters.arithmetic import Executor, run_all
from edl_master.core.parameters.layout import Array

PIECE_BYTES = 2 << 20
_SLAB_PIECES = 16
"""Pieces whose memory is taken at once: much of it at a time comes in large pages."""

_READ = np.empty(0, np.uint8)
"""Marks a piece that was read and is not preserved any more."""


class CopyOnWriteView:
    """One array as it was when the view was taken.

    Attributes:
        dtype: of its elements.
        size: how many there are.
    """

    def __init__(self, array: Array) -> None:
        """Take a view of an array of one dimension."""
        self._living = array
        self.dtype = array.dtype
        self.size = array.size
        self._step = max(1, PIECE_BYTES // array.itemsize)
        self._preserved: dict[int, Array] = {}
        self._slabs: dict[int, Array] = {}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        out = np.empty(self.size, self.dtype)
        for number in self._numbers():
            self._read(number, out[self._cut(number)])
        return out if dtype is None else out.astype(dtype, copy=False)

    def pieces(self) -> Iterator[Array]:
        """Yield the elements in order; each piece can be read once.

        A piece is valid until the next one is asked for.
        """
        into = np.empty(min(self._step, self.size), self.dtype)
        for number in self._numbers():
            cut = self._cut(number)
            piece = into[: cut.stop - cut.start]
            self._read(number, piece)
            self._preserved[number] = _READ
            if number % _SLAB_PIECES == _SLAB_PIECES - 1:
                self._slabs.pop(number // _SLAB_PIECES, None)
            yield piece

    def is_of(self, array: Array) -> bool:
        """Return whether this is a view of the array."""
        return self._living is array

    def find_unpreserved(self) -> list[int]:
        """Return the numbers of the pieces that only the array itself holds."""
        return [number for number in self._numbers() if number not in self._preserved]

    def preserve(self, number: int) -> None:
        """Copy a piece that is about to change; never called twice for one piece at a time."""
        cut = self._cut(number)
        at = number % _SLAB_PIECES * self._step
        slab = self._slab(number // _SLAB_PIECES)
        piece = slab[at : at + cut.stop - cut.start]
        np.copyto(piece, self._living[cut])
        self._preserved.setdefault(number, piece)

    def _slab(self, number: int) -> Array:
        """Memory for some neighbouring pieces; given back when the last of them was read."""
        found = self._slabs.get(number)
        if found is None:
            start = number * _SLAB_PIECES * self._step
            fresh = np.empty(min(_SLAB_PIECES * self._step, self.size - start), self.dtype)
            found = self._slabs.setdefault(number, fresh)
        return found

    def _read(self, number: int, into: Array) -> None:
        preserved = self._preserved.get(number)
        if preserved is None:
            np.copyto(into, self._living[self._cut(number)])
            preserved = self._preserved.get(number)
        if preserved is _READ:
            raise ValueError("this piece was read and is not preserved any more")
        if preserved is not None:
            np.copyto(into, preserved)

    def _numbers(self) -> range:
        return range(-(-self.size // self._step))

    def _cut(self, number: int) -> slice:
        start = number * self._step
        return slice(start, min(start + self._step, self.size))


class CopyOnWriteViews:
    """The views of a set of arrays that are still in use."""

    def __init__(self, executor: Executor | None) -> None:
        self._executor = executor
        self._held: weakref.WeakSet[CopyOnWriteView] = weakref.WeakSet()

    def take(self, array: Array) -> CopyOnWriteView:
        """Return a view of an array as it is now; call ``preserve`` before each change."""
        view = CopyOnWriteView(array)
        self._held.add(view)
        return view

    def preserve(self, arrays: Iterable[Array]) -> None:
        """Copy what views still need of these arrays, which are about to change."""
        if not self._held:
            return
        held = list(self._held)
        views = [view for array in arrays for view in held if view.is_of(array)]
        run_all(
            [
                partial(view.preserve, number)
                for view in views
                for number in view.find_unpreserved()
            ],
            self._executor,
        )
