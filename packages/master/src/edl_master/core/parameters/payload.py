"""Payloads: the bytes on the wire, and the arenas they come from and go to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from edl_master.core.parameters.arithmetic import Executor, run_all, slices
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array, Place

_PIECE_BYTES = 8 << 20
"""Some milliseconds of copying."""

Payload: TypeAlias = bytes | bytearray | memoryview | Array
"""A contiguous buffer of packed values in native (little-endian) byte order."""


class PayloadError(ValueError):
    """A payload does not have the size that the layout asks for."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours in the payload that are neighbours in an arena too; positions in bytes."""

    arena: ArenaKey
    in_arena: slice
    in_payload: slice


class PayloadCodec:
    """One kind of payload: some variables of a layout, packed in their order.

    Usually this is one run of bytes per arena, whatever the number of variables.
    """

    def __init__(self, what: str, places: Iterable[Place]) -> None:
        """Plan a payload of the variables at these places; ``what`` names it in errors."""
        self._what = what
        self._runs: list[_Run] = []
        self.nbytes = 0
        for place in places:
            self._append(place)

    def _append(self, place: Place) -> None:
        begin = place.start * np.dtype(place.arena.dtype).itemsize
        in_arena = slice(begin, begin + place.variable.nbytes)
        in_payload = slice(self.nbytes, self.nbytes + place.variable.nbytes)
        self.nbytes = in_payload.stop
        last = self._runs[-1] if self._runs else None
        if last and last.arena == place.arena:  # then it ends in the arena where this begins
            in_arena = slice(last.in_arena.start, in_arena.stop)
            in_payload = slice(last.in_payload.start, in_payload.stop)
            self._runs.pop()
        self._runs.append(_Run(place.arena, in_arena, in_payload))

    def view(self, payload: Payload) -> dict[ArenaKey, Array]:
        """Return the payload as read-only arenas, without a copy where it lies as an arena does.

        Raises:
            PayloadError: the payload's size is wrong.
        """
        data = self._bytes(payload)
        by_arena: dict[ArenaKey, list[Array]] = {}
        for run in self._runs:
            by_arena.setdefault(run.arena, []).append(data[run.in_payload])
        arenas = {}
        for key, pieces in by_arena.items():
            raw = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            arena = raw.view(key.dtype)
            # A float64 run may begin between two multiples of eight.
            arena = arena if arena.flags.aligned else arena.copy()
            arena.flags.writeable = False
            arenas[key] = arena
        return arenas

    def unpack(self, payload: Payload, into: Arenas) -> None:
        """Copy a payload into arenas.

        Raises:
            PayloadError: the payload's size is wrong; nothing has been copied.
        """
        data = self._bytes(payload)
        for run in self._runs:
            into[run.arena].view(np.uint8)[run.in_arena] = data[run.in_payload]

    def pack(self, arenas: Arenas, out: Payload, executor: Executor | None = None) -> None:
        """Copy arenas into a payload; large ones in pieces on the executor.

        Raises:
            PayloadError: the size of ``out`` is wrong, or it is read-only.
        """
        data = self._bytes(out)
        if not data.flags.writeable:
            raise PayloadError(f"the buffer for {self._what} is read-only")
        pieces: list[tuple[Array, Array]] = []
        for run in self._runs:
            into, given = data[run.in_payload], arenas[run.arena].view(np.uint8)[run.in_arena]
            pieces += [(into[cut], given[cut]) for cut in slices(0, given.size, _PIECE_BYTES)]
        run_all([partial(np.copyto, *piece) for piece in pieces], executor)

    def _bytes(self, payload: Payload) -> Array:
        size = size_of(payload)
        if size != self.nbytes:
            raise PayloadError(f"{self._what} must have {self.nbytes} bytes, not {size}")
        if not size:
            return np.empty(0, np.uint8)
        if not isinstance(payload, np.ndarray):
            return np.frombuffer(payload, np.uint8)
        if not payload.flags.c_contiguous:
            raise PayloadError(f"the buffer for {self._what} is not contiguous")
        return payload.reshape(-1).view(np.uint8)


def check_size(what: str, payload: Payload, nbytes: int) -> None:
    """Make sure that a payload has ``nbytes`` bytes. Raises: PayloadError: it has not."""
    if (size := size_of(payload)) != nbytes:
        raise PayloadError(f"{what} must have {nbytes} bytes, not {size}")


def size_of(payload: Payload) -> int:
    """Return the bytes of a payload."""
    return payload.nbytes if isinstance(payload, np.ndarray | memoryview) else len(payload)


def zeros(sizes: Mapping[ArenaKey, int], keys: Iterable[ArenaKey]) -> dict[ArenaKey, Array]:
    """New arenas full of zeros."""
    return {key: np.zeros(sizes[key], key.dtype) for key in keys}
