"""Direct connections of the parameter plane: headers and payloads over plain sockets, or over TLS.

A call over HTTP/2 costs about a millisecond of Python on each side and copies its payload several
times; an exchange of embedding rows takes less. So these calls have their own connections
(docs/adr/0011). The frames are those of ``parameters``, in the following envelope. All numbers
are little-endian:

- request: magic, method (uint8), three padding bytes, length of the header (uint32), length of
  the payload (uint64), header, payload;
- answer: magic, status (uint8), three padding bytes, length of the header (uint32), header, and
  the payload that the header announces. With status 1 the header is an ``edl.v1.Error``.

A connection carries one call after the other. A peer that breaks off a call closes the connection.
``endpoints`` makes connections, ``listener`` answers calls, and this module has the caller's side
and what both have in common.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from edl_proto.errors import EdlError, error_metadata
from edl_proto.rpc_errors import status_of
from edl_proto.transport.sockets import receive, send_together, shut_down

MAGIC = b"edl\x01"
REQUEST = struct.Struct("<4sBxxxIQ")
ANSWER = struct.Struct("<4sBxxxI")
OK, ERROR = range(2)

MAX_HEADER_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20


class FrameError(ValueError):
    """The frames of a stream do not add up to what its header announced."""


class CallError(grpc.RpcError):
    """A failed call, in the form of gRPC.

    Args:
        code: the gRPC status.
        details: one sentence.
        error: the error that the server answered, if any.
    """

    def __init__(self, code: grpc.StatusCode, details: str, error: EdlError | None = None) -> None:
        super().__init__(details)
        self._code, self._details, self._error = code, details, error

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return error_metadata(self._error) if self._error else ()


class IncomingMessage:
    """The message of a peer: its header first, then its payload.

    As an iterator it gives the header and then pieces, like the frames of a gRPC stream; ``fill``
    receives into memory of the caller.
    """

    def __init__(
        self, connection: socket.socket, header: bytes, nbytes: int | None, deadline: float | None
    ) -> None:
        """Start reading after a header.

        Args:
            connection: the socket to read from.
            header: the header, already received.
            nbytes: of the payload; None if the reader knows its size.
            deadline: on the clock of ``time.monotonic``; None: the timeout of the connection
                applies to each read.
        """
        self._connection = connection
        self._header: bytes | None = header
        self._left = nbytes
        self._deadline = deadline
        self.broken = False
        """The connection has ended or stalled in the middle."""

    def __iter__(self) -> IncomingMessage:
        return self

    def __next__(self) -> bytes:
        if self._header is not None:
            header, self._header = self._header, None
            return header
        if not self._left:
            raise StopIteration
        piece = bytearray(min(self._left, _PIECE_BYTES))
        self.fill(memoryview(piece))
        return bytes(piece)

    def fill(self, target: memoryview) -> None:
        """Receive until ``target``, contiguous bytes, is full.

        Raises:
            FrameError: the payload has less than that.
            OSError: the connection has ended, or the deadline has passed.
        """
        size = len(target)
        if self._left is not None:
            if size > self._left:
                raise FrameError(f"the payload ended {size - self._left} of {size} bytes early")
            self._left -= size
        try:
            receive(self._connection, target, self._deadline)
        except OSError:
            self.broken = True
            raise

    def skip(self) -> None:
        """Receive and discard the rest of the payload."""
        piece = memoryview(bytearray(min(self._left or 0, _PIECE_BYTES)))
        while self._left:
            self.fill(piece[: self._left])


class Connection:
    """A caller's connection, for one call at a time; closes the socket that ``endpoints`` made."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def close(self) -> None:
        self._socket.close()

    def break_off(self) -> None:
        """End the call that another thread makes here; that thread closes the connection."""
        shut_down(self._socket)

    def call(
        self, number: int, header: bytes, payloads: Sequence[memoryview], timeout_s: float | None
    ) -> IncomingMessage:
        """Call a method by its number; the payload of the answer is not read yet.

        Raises:
            CallError: the server answered with an error; the connection may be used again.
            FrameError: the peer sent no valid answer.
            OSError: the connection has ended, or there was no answer in time.
        """
        return self.begin(number, header, payloads, timeout_s)()

    def begin(
        self,
        number: int,
        header: bytes,
        payloads: Sequence[memoryview],
        timeout_s: float | None,
    ) -> Callable[[], IncomingMessage]:
        """Send a request; return the function that receives the answer.

        Without a time limit the call ends with the connection.

        Raises:
            OSError: the connection has ended, or the request was not sent in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if deadline is None:
            self._socket.settimeout(None)
        pieces = [part.cast("B") for part in payloads if part.nbytes]
        nbytes = sum(len(piece) for piece in pieces)
        prefix = REQUEST.pack(MAGIC, number, len(header), nbytes) + header
        send_together(self._socket, [prefix, *pieces], deadline)
        return lambda: self._receive(deadline)

    def _receive(self, deadline: float | None) -> IncomingMessage:
        answer = memoryview(bytearray(ANSWER.size))
        receive(self._socket, answer, deadline)
        magic, status, header_nbytes = ANSWER.unpack(answer)
        if magic != MAGIC or header_nbytes > MAX_HEADER_BYTES:
            raise FrameError("an answer has an invalid header")
        content = bytearray(header_nbytes)
        receive(self._socket, memoryview(content), deadline)
        if status == ERROR:
            error = EdlError.from_bytes(bytes(content))
            raise CallError(status_of(error), error.what, error)
        return IncomingMessage(self._socket, bytes(content), None, deadline)


def translate_os_error(error: OSError, where: str) -> CallError:
    """Translate the error of a broken connection into that of a failed call."""
    if isinstance(error, TimeoutError):
        return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer from {where} in time")
    return CallError(grpc.StatusCode.UNAVAILABLE, f"the connection to {where} broke: {error}")
