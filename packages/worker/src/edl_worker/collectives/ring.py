"""All-reduce and broadcast between machines: a ring of connections, each used in one direction.

Every member sends to the next one by rank, and receives from the one before. The numbers are cut
into as many chunks as there are members. In the first half of an all-reduce each chunk travels once
around the ring, and every member adds its own numbers to it; the last one has the sum. In the
second half the sums travel around. So each member sends and receives about twice the size of the
numbers, however many members there are. Chunks travel in pieces: a member passes a piece on while
it receives the next one.

Notes travel ahead of the chunks of the first half. A member that dies closes its connections; its
neighbours notice, close theirs, and so on. One that is frozen is noticed by the master.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.transport.sockets import shut_down
from edl_worker.collectives.messages import MESSAGE_BYTES, pack_message, unpack_message
from edl_worker.core.collectives import GenerationEnded
from edl_worker.core.replicas import Part

log = logging.getLogger(__name__)

PIECE_BYTES = 2**18
"""The size of a piece: small enough to keep all members busy, large enough for Python."""

_POLL_S = 0.05  # how often a wait looks whether it is still wanted
_CLOSE_S = 0.5  # that the end of a ring may take


class RingGroup:
    """One member's end of a ring.

    Args:
        previous: connection on which the member before this one sends.
        following: connection to the next member.
        rank: of this member.
        size: number of members; at least 2.
        parts: what they add up; the same for all.
        is_over: whether the master has ended the generation; may be called often.
    """

    def __init__(
        self,
        previous: socket.socket,
        following: socket.socket,
        rank: int,
        size: int,
        parts: Sequence[Part],
        is_over: Callable[[], bool],
    ) -> None:
        self.rank, self.size = rank, size
        self._parts = parts
        self._is_over = is_over
        self._previous = previous
        self._previous.settimeout(_POLL_S)
        self._sender = _Sender(following, on_failure=lambda: shut_down(previous))
        self._sum = [np.zeros(part.count, part.dtype) for part in parts]
        self._chunks = [list(self._split_chunk(number)) for number in range(size)]
        pieces = [piece.mine.nbytes for chunk in self._chunks for piece in chunk]
        self._received = np.empty(max(pieces, default=0), np.uint8)

    def _split_chunk(self, number: int) -> Iterator[_Piece]:
        """Yield the pieces of a chunk."""
        for part, total in zip(self._parts, self._sum, strict=True):
            begin, end = (total.size * rank // self.size for rank in (number, number + 1))
            step = max(1, PIECE_BYTES // total.itemsize)
            for at in range(begin, end, step):
                yield _Piece(total[at : min(at + step, end)], part.is_mean)

    # --- calls -----------------------------------------------------------------------------

    def is_awaited(self, within_s: float) -> bool:
        """Wait a little until a peer waits for this member, or is gone; return whether one does."""
        if isinstance(self._previous, ssl.SSLSocket) and self._previous.pending():
            return True
        return bool(select.select([self._previous], [], [], within_s)[0])

    def all_reduce(
        self, values: Sequence[npt.NDArray[Any]], weight: float, note: bytes
    ) -> tuple[list[npt.NDArray[Any]], list[bytes]]:
        """Return the mean or sum of what all members add, and their notes by rank.

        See ``CollectiveGroup.all_reduce``.
        """
        message = pack_message(weight, note)
        self._wait_until_sent()
        self._take(values, weight)
        messages = [b""] * self.size
        messages[self.rank] = message
        self._send_chunk(message, self.rank)
        for step in range(1, self.size):
            self._add_chunk(messages, (self.rank - step) % self.size, is_last=step == self.size - 1)
        for step in range(self.size - 1):
            for piece in self._chunks[(self.rank - step) % self.size]:
                self._receive(piece.bytes)
                if step < self.size - 2:
                    self._sender.put(piece.bytes)
        return self._sum, [unpack_message(each)[1] for each in messages]

    def broadcast(self, content: memoryview) -> None:
        """Copy bytes of the member of rank 0 to all others; see ``CollectiveGroup.broadcast``."""
        content = content.cast("B")
        for at in range(0, len(content), PIECE_BYTES):
            piece = content[at : at + PIECE_BYTES]
            if self.rank:
                self._receive(piece)
            if self.rank < self.size - 1:
                self._sender.put(piece)
        self._wait_until_sent()

    def close(self) -> None:
        """Leave: the peers notice."""
        self._sender.wait(_CLOSE_S)  # the next member may still need what this one passes on
        self._sender.close()
        with contextlib.suppress(OSError):
            self._previous.close()

    # --- parts of an all-reduce ------------------------------------------------------------

    def _take(self, values: Sequence[npt.NDArray[Any]], weight: float) -> None:
        if not weight:
            for total in self._sum:
                total.fill(0)
            return
        for part, given, total in zip(self._parts, values, self._sum, strict=True):
            np.multiply(given, total.dtype.type(weight if part.is_mean else 1), out=total)

    def _send_chunk(self, message: bytes, number: int) -> None:
        self._sender.put(memoryview(message))
        for piece in self._chunks[number]:
            self._sender.put(piece.bytes)

    def _add_chunk(self, messages: list[bytes], number: int, *, is_last: bool) -> None:
        """Receive what the members before this one have of a chunk, add to it, and pass it on.

        Args:
            messages: of all members; that of the chunk's first member is put there.
            number: of the chunk.
            is_last: no other member adds to it, so the sum becomes a mean.
        """
        message = bytearray(MESSAGE_BYTES)
        self._receive(memoryview(message))
        messages[number] = bytes(message)
        weights = 0.0
        if is_last:
            weights = sum(unpack_message(each)[0] for each in messages)
        else:
            self._sender.put(memoryview(messages[number]))
        for piece in self._chunks[number]:
            received = self._received[: piece.mine.nbytes]
            self._receive(received.data)
            np.add(piece.mine, received.view(piece.mine.dtype), out=piece.mine)
            if weights and piece.is_mean:
                np.divide(piece.mine, piece.mine.dtype.type(weights), out=piece.mine)
            self._sender.put(piece.bytes)

    # --- bytes -----------------------------------------------------------------------------

    def _receive(self, target: memoryview) -> None:
        at = 0
        while at < len(target):
            try:
                received = self._previous.recv_into(target[at:])
            except TimeoutError:
                self._check()
                continue
            except OSError as error:
                raise GenerationEnded(f"a peer is gone: {error}") from error
            if not received:
                raise GenerationEnded("a peer is gone")
            at += received

    def _wait_until_sent(self) -> None:
        while not self._sender.wait(_POLL_S):
            self._check()

    def _check(self) -> None:
        if self._sender.failed:
            raise GenerationEnded("the next member is gone")
        if self._is_over():
            raise GenerationEnded("the master has ended the generation")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the numbers: this member's, later the sum's."""

    mine: npt.NDArray[Any]
    is_mean: bool

    @property
    def bytes(self) -> memoryview:
        return self.mine.data.cast("B")


class _Sender:
    """A thread that sends, so that all members of a ring can send and receive at the same time.

    Args:
        connection: that it sends on, and closes in the end.
        on_failure: called in the thread when nothing can be sent any more.
    """

    def __init__(self, connection: socket.socket, on_failure: Callable[[], None]) -> None:
        self._connection = connection
        self._on_failure = on_failure
        self._queue: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._open = 0  # pieces that are not sent yet
        self._changed = threading.Condition()
        self.failed = False
        connection.settimeout(None)
        threading.Thread(target=self._run, name="ring-send", daemon=True).start()

    def put(self, piece: memoryview) -> None:
        """Send a piece, which must not change before it is sent."""
        with self._changed:
            self._open += 1
        self._queue.put(piece)

    def wait(self, within_s: float) -> bool:
        """Wait a little until everything is sent; return whether it is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open or self.failed, within_s)
            return not self._open and not self.failed

    def close(self) -> None:
        """Send nothing more."""
        self._queue.put(None)
        shut_down(self._connection)

    def _run(self) -> None:
        with contextlib.closing(self._connection):
            while (piece := self._queue.get()) is not None:
                try:
                    self._connection.sendall(piece)
                except OSError as error:
                    log.debug("the next member of the ring is gone: %s", error)
                    with self._changed:
                        self.failed = True
                        self._changed.notify_all()
                    self._on_failure()
                    return
                with self._changed:
                    self._open -= 1
                    if not self._open:
                        self._changed.notify_all()
