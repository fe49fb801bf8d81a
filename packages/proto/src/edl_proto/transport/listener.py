"""Answers direct calls: the server's side of ``direct_connection``.

The listener has one thread per connection, because a call that waits for a step permit blocks its
thread anyway, and a connection without a call costs 16 KiB of memory. ``open_connections`` bounds
the threads; a connection above the bound is closed, and its caller sees UNAVAILABLE.

In a secured job (docs/adr/0021) callers prove who they are before the first byte of a call. One
thread at a time uses a connection, which TLS requires; another one may only shut the socket down.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from edl_proto.errors import EdlError
from edl_proto.identity import rules
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.names import Identity
from edl_proto.transport.acceptor import accept_connections
from edl_proto.transport.direct_connection import (
    ANSWER,
    ERROR,
    MAGIC,
    MAX_HEADER_BYTES,
    OK,
    REQUEST,
    IncomingMessage,
)
from edl_proto.transport.endpoints import Endpoint, LocalEndpoint, TcpEndpoint
from edl_proto.transport.open_connections import OpenConnections
from edl_proto.transport.sockets import receive, send_together
from edl_proto.v1 import parameters_pb2 as pb

log = logging.getLogger(__name__)

_FIRST_CALL_S = 30.0
"""How long a new connection may take until its caller has proved who it is and made a call."""

_STALLED_S = 60.0
"""A connection that transfers nothing for this long in the middle of a call is closed."""


class Call(Protocol):
    """The state of a call, for the method that answers it, as in ``grpc.ServicerContext``."""

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
            # does not allow to peek: so this looks below it.
            peek = socket.socket.recv
            return not readable.poll(0) or peek(self._connection, 1, socket.MSG_PEEK) != b""
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class _Request:
    """A call whose header has come.

    Attributes:
        method: its number.
        header: of the call.
        nbytes: of the payload that follows.
    """

    method: int
    header: bytes
    nbytes: int


class Listener:
    """Answers direct calls; each connection has its own thread.

    Args:
        methods: in the order of their numbers, with their names.
        host: address to listen on.
        failed: the error to answer for an exception of a method.
        port: 0 for a free one.
        access_control: admits the callers that the job knows, also through a Unix socket; None:
            admits every caller, at the port alone.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self,
        methods: Sequence[tuple[str, Method]],
        host: str,
        failed: Callable[[str, Exception], EdlError],
        port: int = 0,
        access_control: AccessControl | None = None,
    ) -> None:
        self._methods = tuple(methods)
        self._failed = failed
        tcp = TcpEndpoint(host, port, access_control)
        self.port = tcp.port
        self._local = _local_endpoint(access_control, host) if access_control is not None else None
        self._endpoints: dict[Endpoint, OpenConnections] = {tcp: OpenConnections()}
        if self._local is not None:
            self._endpoints[self._local] = OpenConnections()
        for endpoint, connections in self._endpoints.items():
            serve = partial(self._serve, endpoint, connections)
            threading.Thread(
                target=accept_connections,
                args=(endpoint, connections, "direct connections", serve, "direct-call"),
                name="direct",
                daemon=True,
            ).start()

    def offer(self, caller: Callable[[], Identity]) -> pb.OpenReply:
        """Return where the caller may connect, once for each connection.

        Args:
            caller: returns the proved identity of the caller; only called in a secured job.
        """
        local = self._local.offer(caller()) if self._local is not None else None
        return pb.OpenReply(direct_port=self.port, local=local)

    def close(self) -> None:
        """Accept no more calls, and break off the running ones."""
        for endpoint, connections in self._endpoints.items():
            connections.close()
            endpoint.close()

    def _serve(
        self, endpoint: Endpoint, connections: OpenConnections, connection: socket.socket
    ) -> None:
        deadline = time.monotonic() + _FIRST_CALL_S
        try:
            caller = endpoint.identify(connection, deadline)
            request = self._request(connection, deadline)
            if request is not None and not connections.begin(connection, caller):
                who = caller.name if caller is not None else "an unknown caller"
                log.warning("a direct connection of %s is refused: too many are open", who)
                return
            while request is not None and self._answer(connection, caller, request):
                request = self._request(connection)
        except OSError as error:
            log.debug("a direct connection ended: %s", error)
        finally:
            connections.remove(connection)
            connection.close()

    def _request(self, connection: socket.socket, deadline: float | None = None) -> _Request | None:
        """Receive the beginning of a call, by a deadline if there is one; None if it is invalid."""
        connection.settimeout(None)
        prefix = memoryview(bytearray(REQUEST.size))
        try:
            receive(connection, prefix, deadline)
        except ConnectionResetError:
            return None  # the caller has left
        magic, number, header_nbytes, nbytes = REQUEST.unpack(prefix)
        if magic != MAGIC or header_nbytes > MAX_HEADER_BYTES or number >= len(self._methods):
            return None
        connection.settimeout(_STALLED_S)
        header = bytearray(header_nbytes)
        receive(connection, memoryview(header), deadline)
        return _Request(number, bytes(header), nbytes)

    def _answer(
        self, connection: socket.socket, caller: Identity | None, request: _Request
    ) -> bool:
        """Answer one call; returns whether another one may follow."""
        connection.settimeout(_STALLED_S)
        received = IncomingMessage(connection, request.header, request.nbytes, None)
        name, method = self._methods[request.method]
        pieces: Any = method(received, _Caller(connection))
        with contextlib.closing(pieces):  # methods are generators
            try:
                if caller is not None:
                    rules.check(name, caller, request.header)
                answer = bytes(next(pieces))
                status = OK
            except Exception as error:
                if received.broken:
                    return False
                answer, status = self._failed(name, error).to_proto().SerializeToString(), ERROR
            try:
                following = next(_not_empty(pieces), None) if status == OK else None
            except Exception as error:
                self._failed(name, error)
                return False
            prefixed = ANSWER.pack(MAGIC, status, len(answer)) + answer
            if following is None:
                connection.sendall(prefixed)
            else:
                # The method may reuse the memory of a piece when the next piece is requested.
                send_together(connection, [prefixed, following])
                for piece in pieces:
                    connection.sendall(piece)
        received.skip()
        return True


def _local_endpoint(access_control: AccessControl, host: str) -> LocalEndpoint | None:
    """Open a Unix socket next to the identity of this process, where that is possible."""
    try:
        return LocalEndpoint(access_control.folder, host)
    except OSError as error:
        log.info("direct connections use only TCP: %s", error)
        return None


def _not_empty(pieces: Iterator[Any]) -> Iterator[Any]:
    return (piece for piece in pieces if len(piece))
