"""All-reduce and broadcast between processes of one machine, through memory that they share.

The memory has no name: the member of rank 0 makes it and passes it on over Unix sockets, and it is
gone with the last process that has it. It holds, for each member, what it adds and a note about
that, and then the sum.

An all-reduce has two signals. After the first one, all members have written; then each adds up its
share of the numbers, in the order of the ranks. After the second one the sum is complete, and each
member reads all of it. The sum stays as it is until all members have written again: so a member
that has seen both signals of all peers has it, whatever happens to them after that.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_worker.collectives.peers import PeerSignals

NOTE_BYTES = 512
"""The largest note."""

_WINDOW_BYTES = 2**20  # that a broadcast copies at once, at least
_LINE = 64  # bytes; parts begin at multiples of it, so that no two processors share one


@dataclass(frozen=True, slots=True)
class Part:
    """Numbers of one type.

    Attributes:
        dtype: of the numbers, such as ``float32``.
        count: how many there are.
    """

    dtype: str
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers, up to the next multiple of a line."""
        nbytes = np.dtype(self.dtype).itemsize * self.count
        return -(-nbytes // _LINE) * _LINE


class SharedMemoryGroup:
    """One member's end of the memory that a generation shares.

    Args:
        folder: where the members of this generation meet, and no others.
        rank: of this member.
        size: number of members.
        parts: what they add up; the same for all.
        is_over: whether the master has ended the generation; may be called often.

    Raises:
        GenerationEnded: before all members were there.
        PermissionError: a process of another user is among them.
        OSError: there is not enough memory.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        size: int,
        parts: Sequence[Part],
        is_over: Callable[[], bool],
    ) -> None:
        self.rank, self.size = rank, size
        self._signals = 0
        self._peers = PeerSignals(folder, rank, size, is_over)
        try:
            each = sum(part.nbytes for part in parts)
            memory = self._share(size * (NOTE_BYTES + each) + max(each, _WINDOW_BYTES))
            self._peers.begin()
        except BaseException:
            self._peers.close()
            raise
        notes, at = memory[: size * NOTE_BYTES], size * NOTE_BYTES
        self._notes = np.split(notes, size)
        self._added = [_split(memory[at + r * each :], parts) for r in range(size)]
        self._window = memory[at + size * each :]
        self._sum = _split(self._window, parts)

    def _share(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return memory that all members have."""
        if self.rank == 0:
            file = os.memfd_create("edl-all-reduce", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            file = self._peers.receive_file()
        try:
            if self.rank == 0:
                os.posix_fallocate(file, 0, nbytes)  # fails now, not by a signal in a step
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
                self._peers.share_file(file)
            return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
        finally:
            os.close(file)

    def all_reduce(
        self, values: Sequence[npt.NDArray[Any]], weight: float, note: bytes
    ) -> tuple[list[npt.NDArray[Any]], list[bytes]]:
        """Return the sum of what all members add, and their notes by rank.

        Args:
            values: an array for each part; not read if the weight is 0.
            weight: a factor of the values.
            note: at most ``NOTE_BYTES`` less 4.

        Returns:
            The sum, valid until the next call, and the notes.

        Raises:
            GenerationEnded: there is no sum, or this member cannot know that there is one.
        """
        for number, mine in enumerate(self._added[self.rank]):
            if weight:
                np.multiply(values[number], mine.dtype.type(weight), out=mine)
            else:
                mine.fill(0)
        self._write_note(note)
        self._meet()
        for number, total in enumerate(self._sum):
            share = slice(
                total.size * self.rank // self.size, total.size * (self.rank + 1) // self.size
            )
            np.copyto(total[share], self._added[0][number][share])
            for added in self._added[1:]:
                np.add(total[share], added[number][share], out=total[share])
        notes = [self._read_note(rank) for rank in range(self.size)]
        self._meet()
        return self._sum, notes

    def broadcast(self, source: int, content: memoryview) -> None:
        """Copy bytes of one member to all others.

        Args:
            source: rank of the member that has them.
            content: the bytes; of the others, where to write them. Of the same size for all.

        Raises:
            GenerationEnded: not all members have them.
        """
        data = np.frombuffer(content, np.uint8)
        for at in range(0, data.size, self._window.size):
            piece = data[at : at + self._window.size]
            window = self._window[: piece.size]
            if self.rank == source:
                np.copyto(window, piece)
            self._meet()
            if self.rank != source:
                np.copyto(piece, window)
            self._meet()

    def _meet(self) -> None:
        """Wait until all members have come so far."""
        self._signals += 1
        self._peers.send()
        self._peers.wait(self._signals)

    def _write_note(self, note: bytes) -> None:
        content = len(note).to_bytes(4, "little") + note
        if len(content) > NOTE_BYTES:
            raise ValueError(f"a note of {len(note)} bytes")
        self._notes[self.rank][: len(content)] = np.frombuffer(content, np.uint8)

    def _read_note(self, rank: int) -> bytes:
        content = self._notes[rank].tobytes()
        return content[4 : 4 + int.from_bytes(content[:4], "little")]

    def close(self) -> None:
        """Leave: the peers notice."""
        self._peers.close()


def _split(memory: npt.NDArray[np.uint8], parts: Sequence[Part]) -> list[npt.NDArray[Any]]:
    """Return the arrays of the parts, which lie one after the other."""
    arrays, at = [], 0
    for part in parts:
        dtype = np.dtype(part.dtype)
        arrays.append(memory[at : at + part.count * dtype.itemsize].view(dtype))
        at += part.nbytes
    return arrays
