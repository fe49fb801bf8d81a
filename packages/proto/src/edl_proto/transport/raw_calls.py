"""Raw calls: methods whose requests and answers are frames, with no message around the payload.

A protobuf message around a large payload costs most of its bandwidth (docs/adr/0002), so these
methods are streams of ``bytes``: the first frame is a header message of ``parameters.proto``, each
following frame is a plain piece of the payload. They go over direct connections
(docs/adr/0011) where the server can be reached by one, and over gRPC otherwise.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from edl_proto.errors import EdlError
from edl_proto.identity.access_control import AccessControl, caller_of
from edl_proto.identity.credentials import Peer
from edl_proto.transport.direct_connection import (
    CallError,
    Connection,
    FrameError,
    translate_os_error,
)
from edl_proto.transport.endpoints import connect_local, connect_tcp
from edl_proto.transport.frames import Frames, split
from edl_proto.transport.listener import Listener, Method
from edl_proto.v1 import parameters_pb2 as pb

log = logging.getLogger(__name__)

T = TypeVar("T")
Pending = Generator[None, None, T]
"""A call that yields once its request is sent; then it receives the answer, and returns it."""

_CONNECT_S = 5.0
_RETRY_DIRECT_S = 30.0
"""How long calls go over gRPC after a direct connection could not be made."""


@dataclass(frozen=True, slots=True)
class RawService:
    """The methods of one role.

    Attributes:
        name: of the gRPC service.
        methods: the names; direct calls use their index. A servicer implements each under its name
            in snake case.
    """

    name: str
    methods: tuple[str, ...]

    def path(self, method: str) -> str:
        return f"/{self.name}/{method}"

    def implementations(self, servicer: Any) -> list[Method]:
        """Return the methods of a servicer, in the order of ``methods``."""
        return [getattr(servicer, _to_snake_case(name)) for name in self.methods]


def _to_snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def listen(
    service: RawService,
    servicer: object,
    host: str,
    failed: Callable[[str, Exception], EdlError],
    port: int = 0,
    access_control: AccessControl | None = None,
) -> Listener:
    """Answer direct calls to a service at a port of ``host``, 0 for a free one.

    With access control, there is also a Unix socket for callers on this machine. Without it, the
    port admits every caller.

    Raises:
        OSError: that is no address of this machine, or the port is taken.
    """
    named = zip(service.methods, service.implementations(servicer), strict=True)
    methods = [(service.path(name), method) for name, method in named]
    return Listener(methods, host, failed, port, access_control)


def add_to_server(
    service: RawService, servicer: object, server: grpc.Server, direct: Listener | None = None
) -> None:
    """Register the methods of a service, and the method that offers its direct endpoint."""

    def open_direct(_: bytes, context: grpc.ServicerContext) -> bytes:
        offered = direct.offer(lambda: caller_of(context)) if direct else pb.OpenReply()
        return offered.SerializeToString()

    handlers: dict[str, Any] = {
        name: grpc.stream_stream_rpc_method_handler(_as_frames(method))
        for name, method in zip(service.methods, service.implementations(servicer), strict=True)
    }
    handlers["Open"] = grpc.unary_unary_rpc_method_handler(open_direct)
    generic = grpc.method_handlers_generic_handler(service.name, handlers)
    server.add_generic_rpc_handlers((generic,))


def _as_frames(method: Method) -> Callable[[Frames, grpc.ServicerContext], Frames]:
    """Make the answer of a method a stream of frames that gRPC can carry."""

    def answer(frames: Frames, context: grpc.ServicerContext) -> Frames:
        pieces = method(frames, context)
        yield bytes(next(pieces))
        for piece in pieces:
            yield from split(memoryview(piece))

    return answer


class RawStub:
    """The client side of a service; every call raises ``grpc.RpcError``.

    Attributes:
        address: where the server is.
    """

    def __init__(
        self,
        service: RawService,
        channel: grpc.Channel,
        address: str = "",
        peer: Peer | None = None,
    ) -> None:
        """Call through a channel.

        Args:
            service: whose methods are called.
            channel: to the server.
            address: ``host:port`` of the server; if given, calls go over direct connections
                to this host where that is possible.
            peer: the process that must be at their other end; None: any process.
        """
        self._service = service
        self._open: Any = channel.unary_unary(service.path("Open"))
        self._streams: list[Any] = [
            channel.stream_stream(service.path(name)) for name in service.methods
        ]
        self.address = address
        self._peer = peer
        self._lock = threading.Lock()
        self._free: list[Connection] = []
        self._used: set[Connection] = set()
        self._closed = False
        self._streams_until = 0.0 if address else float("inf")

    def close(self) -> None:
        """Close all direct connections; running calls break off."""
        with self._lock:
            self._closed = True
            for connection in self._used:
                connection.break_off()
        self._close_free()

    def _close_free(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    @property
    def must_connect(self) -> bool:
        """Whether the next call has to connect first, which takes seconds if the host is lost."""
        return not self._free and not self._uses_streams

    @property
    def _uses_streams(self) -> bool:
        return self._closed or time.monotonic() < self._streams_until

    @contextmanager
    def call(
        self, name: str, header: Any, payloads: Sequence[memoryview], timeout_s: float | None
    ) -> Iterator[Frames]:
        """Make a call, and give the frames of its answer.

        Without a time limit, it waits for a server that starts, and then lasts until the end.
        """
        with self.begin(name, header, payloads, timeout_s) as answer:
            yield answer()

    @contextmanager
    def begin(
        self, name: str, header: Any, payloads: Sequence[memoryview], timeout_s: float | None
    ) -> Iterator[Callable[[], Frames]]:
        """Send a request, and give a function that waits for the frames of its answer.

        The function must be called before the context ends without an error.
        """
        number = self._service.methods.index(name)
        connection = self._connection(timeout_s)
        if connection is None:
            frames = self._streams[number](_stream(header, *payloads), timeout=timeout_s)
            yield lambda: frames
            return
        try:
            yield connection.begin(number, header.SerializeToString(), payloads, timeout_s)
        except CallError:  # the whole answer was an error
            self._keep(connection)
            raise
        except OSError as error:
            self._drop(connection)
            self._close_free()  # the others are hardly better
            raise translate_os_error(error, self.address) from error
        except BaseException:
            self._drop(connection)
            raise
        self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._used.discard(connection)
                self._free.append(connection)
                return
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        with self._lock:  # what is closed must not be broken off: its number may be reused
            self._used.discard(connection)
            connection.close()

    def _connection(self, timeout_s: float | None) -> Connection | None:
        """Return a direct connection, or None where calls have to go over gRPC."""
        with self._lock:
            if self._free:
                self._used.add(connection := self._free.pop())
                return connection
        if self._uses_streams:
            return None
        within_s = _CONNECT_S if timeout_s is None else min(timeout_s, _CONNECT_S)
        waits = timeout_s is None
        answer = self._open(b"", timeout=None if waits else within_s, wait_for_ready=waits)
        offered = pb.OpenReply.FromString(answer)
        for connect in self._connectors(offered, within_s):
            try:
                return self._use(Connection(connect()))
            except OSError as error:
                log.info("no direct connection to %s: %s", self.address, error)
        self._streams_until = time.monotonic() + _RETRY_DIRECT_S
        return None

    def _connectors(
        self, offered: pb.OpenReply, within_s: float
    ) -> Iterator[Callable[[], socket.socket]]:
        """Return the functions that may make a direct connection, the best one first."""
        host = self.address.rpartition(":")[0].strip("[]")
        if offered.HasField("local") and offered.local.host == host:
            yield lambda: connect_local(offered.local, within_s)
        if port := offered.direct_port:
            yield lambda: connect_tcp(host, port, within_s, self._peer)

    def _use(self, connection: Connection) -> Connection:
        with self._lock:
            self._used.add(connection)
            if self._closed:
                connection.break_off()
        return connection


def finish(call: Pending[T]) -> T:
    """Make a call, or the rest of it, and return its answer."""
    while True:
        try:
            next(call)
        except StopIteration as end:
            answer: T = end.value
            return answer


def first_frame(frames: Frames) -> bytes:
    """Return the header of a stream. Raises: FrameError: the stream has none."""
    frame = next(frames, None)
    if frame is None:
        raise FrameError("the stream ended before its header")
    return frame


def _stream(header: Any, *payloads: memoryview) -> Iterator[bytes]:
    yield header.SerializeToString()
    for payload in payloads:
        yield from split(payload)
