"""Direct connections of the parameter plane: headers and payloads over TCP, or TLS over TCP.

A call over HTTP/2 costs about a millisecond of Python on each side and copies its payload several
times; an exchange of embedding rows takes less. So these calls have their own connections
(docs/adr/0011). The frames are those of ``parameters``, in the following envelope. All numbers
are little-endian:

- request: magic, method (uint8), three padding bytes, length of the header (uint32), length of
  the payload (uint64), header, payload;
- answer: magic, status (uint8), three padding bytes, length of the header (uint32), header, and
  the payload that the header announces. With status 1 the header is an ``edl.v1.Error``.

A connection carries one call after the other. A peer that breaks off a call closes the connection.

The listener has one thread per connection, because a call that waits for a step permit blocks its
thread anyway, and a connection without a call costs 16 KiB of memory. ``_MOST_CONNECTIONS`` bounds
the threads; a connection above the bound is closed, and its caller sees UNAVAILABLE.

In a secured job (docs/adr/0021) both ends prove who they are before the first byte of a call. One
thread at a time uses a connection, which TLS requires; another one may only shut the socket down.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import grpc

from edl_proto.errors import EdlError, error_metadata
from edl_proto.identity import rules
from edl_proto.identity.credentials import Peer
from edl_proto.identity.gate import Gate
from edl_proto.identity.names import Identity
from edl_proto.transport.sockets import prepare, receive, send_together, shut_down

log = logging.getLogger(__name__)

_MAGIC = b"edl\x01"
_REQUEST = struct.Struct("<4sBxxxIQ")
_ANSWER = struct.Struct("<4sBxxxI")
_OK, _ERROR = range(2)

_MOST_HEADER_BYTES = 1 << 18
_MOST_CONNECTIONS = 4096
_PIECE_BYTES = 1 << 20

_STALLED_S = 60.0
"""A connection that transfers nothing for this long in the middle of a call is closed."""


class FrameError(ValueError):
    """A stream whose frames do not add up to what its header announced."""


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
        """Start behind a header.

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


class Call(Protocol):
    """The state of a call, for the method that answers it; ``grpc.ServicerContext`` has it, too."""

    def is_active(self) -> bool:
        """Whether the caller still waits for the answer."""
        ...


Method = Callable[[Iterator[bytes], Call], Iterator[bytes | memoryview]]
"""Frames in, header and pieces of the payload out."""


class _Caller:
    """The caller at the other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def is_active(self) -> bool:
        readable = select.poll()
        readable.register(self._connection, select.POLLIN)
        try:
            # A waiting caller sends nothing: a readable connection has ended. Also under TLS, which
            # does not let anybody peek: so this looks below it.
            peek = socket.socket.recv
            return not readable.poll(0) or peek(self._connection, 1, socket.MSG_PEEK) != b""
        except OSError:
            return False


class Listener:
    """Answers direct calls; each connection has its own thread.

    Args:
        methods: in the order of their numbers, with their names.
        host: address to listen on.
        failed: the error to answer for an exception of a method.
        port: 0 for a free one.
        gate: lets callers in; None: everybody may come.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self,
        methods: Sequence[tuple[str, Method]],
        host: str,
        failed: Callable[[str, Exception], EdlError],
        port: int = 0,
        gate: Gate | None = None,
    ) -> None:
        self._methods = tuple(methods)
        self._failed = failed
        self._gate = gate
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=128)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._listen, name="direct", daemon=True).start()

    def close(self) -> None:
        """Accept no more calls, and break off the running ones."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for one in (self._listening, *connections):
            shut_down(one)
        self._listening.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # no file descriptors left, or the caller has disconnected
                continue
            with self._lock:
                accepted = not self._closed and len(self._connections) < _MOST_CONNECTIONS
                if accepted:
                    self._connections.add(connection)
            if not accepted:
                log.warning("a direct connection is refused: %d are open", _MOST_CONNECTIONS)
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="direct-call", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        caller = None
        try:
            prepare(connection)
            if self._gate is not None:
                plain = connection
                connection, caller = self._gate.admit(plain)
                self._replace(plain, connection)
            while self._answer(connection, caller):
                pass
        except OSError as error:
            log.debug("a direct connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _replace(self, plain: socket.socket, secured: socket.socket) -> None:
        with self._lock:
            self._connections.discard(plain)
            self._connections.add(secured)
            if self._closed:
                shut_down(secured)

    def _answer(self, connection: socket.socket, caller: Identity | None) -> bool:
        """Answer one call; returns whether another one may follow."""
        connection.settimeout(None)
        prefix = memoryview(bytearray(_REQUEST.size))
        try:
            receive(connection, prefix)
        except ConnectionResetError:
            return False  # the caller has left
        magic, number, header_nbytes, nbytes = _REQUEST.unpack(prefix)
        if magic != _MAGIC or header_nbytes > _MOST_HEADER_BYTES or number >= len(self._methods):
            return False
        connection.settimeout(_STALLED_S)
        header = bytearray(header_nbytes)
        receive(connection, memoryview(header))
        received = IncomingMessage(connection, bytes(header), nbytes, None)
        name, method = self._methods[number]
        with contextlib.closing(method(received, _Caller(connection))) as pieces:
            try:
                if caller is not None:
                    rules.check(name, caller, bytes(header))
                answer = bytes(next(pieces))
                status = _OK
            except Exception as error:
                if received.broken:
                    return False
                answer, status = self._failed(name, error).to_proto().SerializeToString(), _ERROR
            try:
                following = next(_not_empty(pieces), None) if status == _OK else None
            except Exception as error:
                self._failed(name, error)
                return False
            prefixed = _ANSWER.pack(_MAGIC, status, len(answer)) + answer
            if following is None:
                connection.sendall(prefixed)
            else:
                # The method may reuse the memory of a piece when the next piece is requested.
                send_together(connection, [prefixed, following])
                for piece in pieces:
                    connection.sendall(piece)
        received.skip()
        return True


class Connection:
    """A caller's connection, for one call at a time.

    Args:
        host, port: where to connect to.
        timeout_s: for that.
        peer: what has to be there; None: anything may be.

    Raises:
        OSError: no process listens there, or not this one.
    """

    def __init__(self, host: str, port: int, timeout_s: float, peer: Peer | None = None) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        prepare(self._socket)
        if peer is not None:
            try:
                context = peer.credentials.current().client_context
                self._socket = context.wrap_socket(self._socket, server_hostname=peer.host)
            except BaseException:
                self._socket.close()
                raise

    def close(self) -> None:
        self._socket.close()

    def break_off(self) -> None:
        """End the call that another thread makes here; that thread closes the connection."""
        shut_down(self._socket)

    def call(
        self, number: int, header: bytes, payloads: Sequence[memoryview], timeout_s: float
    ) -> IncomingMessage:
        """Call a method by its number; the payload of the answer is not read yet.

        Raises:
            CallError: the server answered with an error; the connection may be used again.
            FrameError: the peer sent no valid answer.
            OSError: the connection has ended, or there was no answer in time.
        """
        deadline = time.monotonic() + timeout_s
        pieces = [part.cast("B") for part in payloads if part.nbytes]
        nbytes = sum(len(piece) for piece in pieces)
        prefix = _REQUEST.pack(_MAGIC, number, len(header), nbytes) + header
        send_together(self._socket, [prefix, *pieces], deadline)
        answer = memoryview(bytearray(_ANSWER.size))
        receive(self._socket, answer, deadline)
        magic, status, header_nbytes = _ANSWER.unpack(answer)
        if magic != _MAGIC or header_nbytes > _MOST_HEADER_BYTES:
            raise FrameError("an answer does not begin as answers do")
        content = bytearray(header_nbytes)
        receive(self._socket, memoryview(content), deadline)
        if status == _ERROR:
            error = EdlError.from_bytes(bytes(content))
            raise CallError(error.status, error.what, error)
        return IncomingMessage(self._socket, bytes(content), None, deadline)


def translate_os_error(error: OSError, where: str) -> CallError:
    """A broken connection as a failed call."""
    if isinstance(error, TimeoutError):
        return CallError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer from {where} in time")
    return CallError(grpc.StatusCode.UNAVAILABLE, f"the connection to {where} broke: {error}")


def _not_empty(pieces: Iterator[Any]) -> Iterator[Any]:
    return (piece for piece in pieces if len(piece))
