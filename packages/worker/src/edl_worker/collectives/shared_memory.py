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
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.collectives.messages import MESSAGE_BYTES, pack_message, unpack_message
from edl_worker.collectives.peers import PeerSignals
from edl_worker.core.collectives import CollectiveGroup
from edl_worker.core.replicas import Generation, Part

_WINDOW_BYTES = 2**20  # that a broadcast copies at once, at least
_PATIENCE_S = 1.0  # how long a sum may take to be complete if the generation is over
_LINE = 64  # bytes; parts begin at multiples of it, so that no two processors share one


class Memory:
    """Memory that processes can share.

    Attributes:
        file: of the memory, which has no name.
        content: all its bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.content = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)

    @classmethod
    def allocate(cls, nbytes: int) -> Memory:
        """Return new memory. Raises: OSError: there is not enough."""
        file = _open(os.memfd_create("edl-all-reduce", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        os.posix_fallocate(file.fileno(), 0, nbytes)  # fails now, not by a signal in a step
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return cls(file)

    def is_of(self, file: BinaryIO) -> bool:
        """Whether this is the memory of an open file."""
        return os.path.sameopenfile(self.file.fileno(), file.fileno())


class SharedMemory:
    """The way in which members meet that run on one machine.

    Attributes:
        address: empty; peers need none.

    Args:
        worker: number of this worker.
        folder: of the job, which only its user can open; each generation meets in one below it.
    """

    address = ""

    def __init__(self, worker: int, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        self._kept: tuple[frozenset[int], Memory] | None = None  # and the members that share it

    def meet(
        self, generation: Generation, parts: Sequence[Part], is_over: Callable[[], bool]
    ) -> CollectiveGroup:
        """Meet the other members of a generation; see ``Collectives.meet``."""
        members = frozenset(generation.members)
        # A process that is no member any more, but slow to notice, may still write to old memory.
        kept = None
        if self._kept is not None and self._kept[0] == members == set(generation.sources):
            kept = self._kept[1]
        self.release()
        folder = self._folder / f"{generation.incarnation}-{generation.number}"
        rank = generation.members.index(self._worker)
        try:
            group = SharedMemoryGroup(folder, rank, len(members), parts, is_over, kept)
        except OSError as error:
            raise EdlError(
                ErrorCode.SYSTEM,
                f"worker {self._worker} cannot exchange gradients with the others of this "
                f"machine: {error}",
                where=str(folder),
                remedy="Workers that train by all-reduce need memory for all gradients of the "
                "model and a folder of the job that they can write; with --strategy "
                "parameter-server they need neither.",
            ) from error
        self._kept = members, group.memory
        return group

    def release(self) -> None:
        """Give the memory of the last generation back; see ``Collectives.release``."""
        self._kept = None


class SharedMemoryGroup:
    """One member's end of the memory that a generation shares.

    Args:
        folder: where the members of this generation meet, and no others.
        rank: of this member.
        size: number of members.
        parts: what they add up; the same for all.
        is_over: whether the master has ended the generation; may be called often.
        kept: memory of an earlier generation of the same processes, to be used again.

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
        kept: Memory | None = None,
    ) -> None:
        self.rank, self.size = rank, size
        self._parts = parts
        self._peers = PeerSignals(folder, rank, size, is_over)
        try:
            each = sum(map(_nbytes, parts))
            self.memory = self._share(
                size * (MESSAGE_BYTES + each) + max(each, _WINDOW_BYTES), kept
            )
            self._peers.begin()
        except BaseException:
            self._peers.close()
            raise
        memory, at = self.memory.content, size * MESSAGE_BYTES
        self._messages = np.split(memory[:at], size)
        self._added = [_split(memory[at + r * each :], parts) for r in range(size)]
        self._window = memory[at + size * each :]
        self._sum = _split(self._window, parts)

    def _share(self, nbytes: int, kept: Memory | None) -> Memory:
        """Return memory that all members have."""
        if self.rank == 0:
            if kept is None or kept.content.size != nbytes:
                kept = Memory.allocate(nbytes)
            self._peers.share_file(kept.file.fileno())
            return kept
        file = _open(self._peers.receive_file())
        return kept if kept is not None and kept.is_of(file) else Memory(file)

    def is_awaited(self, within_s: float) -> bool:
        """Wait a little until a peer waits for this member, or is gone; return whether one does."""
        return self._peers.is_awaited(within_s)

    def all_reduce(
        self, values: Sequence[npt.NDArray[Any]], weight: float, note: bytes
    ) -> tuple[list[npt.NDArray[Any]], list[bytes]]:
        """Return the mean or sum of what all members add, and their notes by rank.

        See ``CollectiveGroup.all_reduce``.
        """
        message = pack_message(weight, note)
        if weight:
            for part, given, mine in zip(self._parts, values, self._added[self.rank], strict=True):
                factor = mine.dtype.type(weight if part.is_mean else 1)
                np.multiply(given, factor, out=mine)
        self._messages[self.rank][:] = np.frombuffer(message, np.uint8)
        self._meet()
        messages = (unpack_message(each.tobytes()) for each in self._messages)
        weights, notes = zip(*messages, strict=True)
        self._add_up(weights)
        # The others have all that they need: so this comes soon, unless one of them dies.
        self._meet(patience_s=_PATIENCE_S)
        return self._sum, list(notes)

    def _add_up(self, weights: Sequence[float]) -> None:
        """Add up this member's share of the numbers."""
        adding = [rank for rank, weight in enumerate(weights) if weight]
        for number, (part, total) in enumerate(zip(self._parts, self._sum, strict=True)):
            at = [total.size * rank // self.size for rank in (self.rank, self.rank + 1)]
            share = total[slice(*at)]
            if not adding:
                share.fill(0)
            for position, rank in enumerate(adding):
                added = self._added[rank][number][slice(*at)]
                if position:
                    np.add(share, added, out=share)
                else:
                    np.copyto(share, added)
            if part.is_mean and adding:
                np.divide(share, total.dtype.type(sum(weights)), out=share)

    def broadcast(self, content: memoryview) -> None:
        """Copy bytes of the member of rank 0 to all others; see ``CollectiveGroup.broadcast``."""
        data = np.frombuffer(content, np.uint8)
        for at in range(0, data.size, self._window.size):
            piece = data[at : at + self._window.size]
            window = self._window[: piece.size]
            if self.rank == 0:
                np.copyto(window, piece)
            self._meet()
            if self.rank != 0:
                np.copyto(piece, window)
            self._meet()

    def _meet(self, patience_s: float = 0.0) -> None:
        """Wait until all members have come so far."""
        self._peers.send()
        self._peers.wait(patience_s)

    def close(self) -> None:
        """Leave: the peers notice."""
        self._peers.close()


def _open(descriptor: int) -> BinaryIO:
    """Return an open file that closes itself when nothing uses it any more."""
    return open(descriptor, "rb+", buffering=0)


def _nbytes(part: Part) -> int:
    """Return the bytes of a part's numbers, up to the next multiple of a line."""
    nbytes = np.dtype(part.dtype).itemsize * part.count
    return -(-nbytes // _LINE) * _LINE


def _split(memory: npt.NDArray[np.uint8], parts: Sequence[Part]) -> list[npt.NDArray[Any]]:
    """Return the arrays of the parts, which lie one after the other."""
    arrays, at = [], 0
    for part in parts:
        dtype = np.dtype(part.dtype)
        arrays.append(memory[at : at + part.count * dtype.itemsize].view(dtype))
        at += _nbytes(part)
    return arrays
