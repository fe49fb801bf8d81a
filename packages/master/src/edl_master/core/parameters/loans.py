"""Arrays as they were at one moment, while they change: copied on write, piece by piece.

Whoever writes a snapshot to a disk reads without the plane's lock, and no update waits for it. An
update first copies what it is about to change and nobody has read yet; that is all it pays.

There is no lock between the two. An update keeps a piece *before* it changes the array; a reader
looks for a kept piece *after* it has copied the array's. If there is none then, nothing was
changed until the reader had finished, and its copy is good; otherwise it takes the kept one.
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
"""Stands where a piece need not be kept any more."""


class Loan:
    """One array as it was when it was lent.

    Attributes:
        dtype: of its elements.
        size: how many there are.
    """

    def __init__(self, array: Array) -> None:
        """Lend an array of one dimension."""
        self._living = array
        self.dtype = array.dtype
        self.size = array.size
        self._step = max(1, PIECE_BYTES // array.itemsize)
        self._kept: dict[int, Array] = {}
        self._slabs: dict[int, Array] = {}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        out = np.empty(self.size, self.dtype)
        for number in self._numbers():
            self._read(number, out[self._cut(number)])
        return out if dtype is None else out.astype(dtype, copy=False)

    def pieces(self) -> Iterator[Array]:
        """The elements in order, and once: what was given is not kept any longer.

        Each piece is good until the next one is asked for.
        """
        into = np.empty(min(self._step, self.size), self.dtype)
        for number in self._numbers():
            cut = self._cut(number)
            piece = into[: cut.stop - cut.start]
            self._read(number, piece)
            self._kept[number] = _READ
            if number % _SLAB_PIECES == _SLAB_PIECES - 1:
                self._slabs.pop(number // _SLAB_PIECES, None)
            yield piece

    def is_of(self, array: Array) -> bool:
        """Whether it is this array that was lent."""
        return self._living is array

    def unkept(self) -> list[int]:
        """Numbers of the pieces that only the array itself holds."""
        return [number for number in self._numbers() if number not in self._kept]

    def keep(self, number: int) -> None:
        """Copy a piece that is about to change; no two calls for one piece at a time."""
        cut = self._cut(number)
        at = number % _SLAB_PIECES * self._step
        slab = self._slab(number // _SLAB_PIECES)
        piece = slab[at : at + cut.stop - cut.start]
        np.copyto(piece, self._living[cut])
        self._kept.setdefault(number, piece)

    def _slab(self, number: int) -> Array:
        """Memory for some neighbouring pieces; given back when the last of them was read."""
        found = self._slabs.get(number)
        if found is None:
            start = number * _SLAB_PIECES * self._step
            fresh = np.empty(min(_SLAB_PIECES * self._step, self.size - start), self.dtype)
            found = self._slabs.setdefault(number, fresh)
        return found

    def _read(self, number: int, into: Array) -> None:
        kept = self._kept.get(number)
        if kept is None:
            np.copyto(into, self._living[self._cut(number)])
            kept = self._kept.get(number)
        if kept is _READ:
            raise ValueError("this piece was read, and is not kept any longer")
        if kept is not None:
            np.copyto(into, kept)

    def _numbers(self) -> range:
        return range(-(-self.size // self._step))

    def _cut(self, number: int) -> slice:
        start = number * self._step
        return slice(start, min(start + self._step, self.size))


class Loans:
    """What was lent of a plane's arrays and is still held by somebody."""

    def __init__(self, executor: Executor | None) -> None:
        self._executor = executor
        self._held: weakref.WeakSet[Loan] = weakref.WeakSet()

    def lend(self, array: Array) -> Loan:
        """An array as it is now, whatever becomes of it, if ``own`` is called before."""
        loan = Loan(array)
        self._held.add(loan)
        return loan

    def own(self, arrays: Iterable[Array]) -> None:
        """These arrays are about to change: from now on they are nobody else's."""
        if not self._held:
            return
        held = list(self._held)
        loans = [loan for array in arrays for loan in held if loan.is_of(array)]
        run_all(
            [partial(loan.keep, number) for loan in loans for number in loan.unkept()],
            self._executor,
        )
