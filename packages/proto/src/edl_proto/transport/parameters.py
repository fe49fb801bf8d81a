"""The parameter plane on the wire: a small header, then raw bytes.

A protobuf message around a large payload costs most of its bandwidth (docs/adr/0002), so
these methods are streams of ``bytes``: the first frame is a header message of
``parameters.proto``, each following frame is a plain piece of the arena. They go over direct
connections (``direct``, docs/adr/0011) where the server's port for these can be reached, and
over gRPC otherwise.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import grpc

from edl_proto.errors import EdlError
from edl_proto.transport.tcp import (
    Call,
    CallError,
    Connection,
    FrameError,
    Listener,
    Method,
    Received,
    told,
)
from edl_proto.v1 import parameters_pb2 as pb

__all__ = [
    "FRAME_BYTES",
    "MOST_ROW_BYTES",
    "SERVICE",
    "Buffer",
    "Call",
    "FrameError",
    "Frames",
    "ParametersServicer",
    "ParametersStub",
    "Pieces",
    "add_to_server",
    "fill",
    "listen",
    "pieces",
    "split",
]

log = logging.getLogger(__name__)

SERVICE = "edl.v1.Parameters"
FRAME_BYTES = 1 << 20

MOST_ROW_BYTES = 256 << 20
"""Bytes of rows and their ids in one request or answer; more are asked for in several."""

_CONNECT_S = 3.0
_TRY_AGAIN_S = 30.0
"""After a direct connection could not be made, calls go over gRPC for so long."""

_METHODS = ("Initialize", "Pull", "Push", "PutRows", "ScanRows")


_NOTHING = memoryview(b"")

Buffer = Callable[[int], memoryview | bytearray]
"""Gives a writable buffer of so many bytes."""


Frames = Iterator[bytes]
"""A header, then pieces of a payload."""

Pieces = Iterator[bytes | memoryview]
"""A header, then pieces of any size; memory that is the servicer's until the next is asked for."""


class ParametersServicer(Protocol):
    """What a server of parameters implements: frames in, pieces out."""

    def initialize(self, frames: Frames, call: Call, /) -> Pieces: ...

    def pull(self, frames: Frames, call: Call, /) -> Pieces: ...

    def push(self, frames: Frames, call: Call, /) -> Pieces: ...

    def put_rows(self, frames: Frames, call: Call, /) -> Pieces: ...

    def scan_rows(self, frames: Frames, call: Call, /) -> Pieces: ...


def _methods(servicer: ParametersServicer) -> tuple[Method, ...]:
    """In the order of ``_METHODS``."""
    return (
        servicer.initialize,
        servicer.pull,
        servicer.push,
        servicer.put_rows,
        servicer.scan_rows,
    )


def listen(
    servicer: ParametersServicer, host: str, failed: Callable[[str, Exception], EdlError]
) -> Listener:
    """Answer direct calls of the raw methods at a free port of ``host``.

    Raises:
        OSError: that is no address of this machine.
    """
    named = zip(_METHODS, _methods(servicer), strict=True)
    return Listener([(f"/{SERVICE}/{name}", method) for name, method in named], host, failed)


def add_to_server(servicer: ParametersServicer, server: grpc.Server, direct_port: int = 0) -> None:
    """Register the raw methods on a server; ``direct_port`` is where ``listen`` answers, if."""
    handlers: dict[str, Any] = {
        name: grpc.stream_stream_rpc_method_handler(_framed(method))
        for name, method in zip(_METHODS, _methods(servicer), strict=True)
    }
    opened = pb.OpenReply(direct_port=direct_port).SerializeToString()
    handlers["Open"] = grpc.unary_unary_rpc_method_handler(lambda _, context: opened)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def _framed(method: Method) -> Callable[[Frames, grpc.ServicerContext], Frames]:
    """A method whose answer is frames that gRPC may carry."""

    def answer(frames: Frames, context: grpc.ServicerContext) -> Frames:
        pieces = method(frames, context)
        yield bytes(next(pieces))
        for piece in pieces:
            yield from split(memoryview(piece))

    return answer


def split(payload: memoryview, frame_bytes: int = FRAME_BYTES) -> Iterator[bytes]:
    """A payload as frames."""
    payload = payload.cast("B")
    for start in range(0, len(payload), frame_bytes):
        yield bytes(payload[start : start + frame_bytes])


def fill(frames: Iterator[bytes], target: memoryview) -> None:
    """Read frames into a preallocated buffer until it is full.

    Raises:
        FrameError: the frames end early or hold more than the buffer.
    """
    target = target.cast("B")
    if isinstance(frames, Received):
        frames.fill(target)
        return
    for at, frame in _frames(frames, len(target)):
        target[at : at + len(frame)] = frame


def pieces(frames: Iterator[bytes], nbytes: int, memory: memoryview) -> Iterator[memoryview]:
    """Read so many bytes piece by piece, for who makes something else of them.

    Args:
        frames: what to read from.
        nbytes: how many.
        memory: what may be read into; a piece is gone when the next one is asked for.

    Raises:
        FrameError: the frames end early or hold more.
    """
    if not isinstance(frames, Received):
        for _, frame in _frames(frames, nbytes):
            yield memoryview(frame)
        return
    for at in range(0, nbytes, len(memory)):
        piece = memory[: min(len(memory), nbytes - at)]
        frames.fill(piece)
        yield piece


def _frames(frames: Iterator[bytes], nbytes: int) -> Iterator[tuple[int, bytes]]:
    """Frames of so many bytes together, with their places."""
    at = 0
    while at < nbytes:
        frame = next(frames, None)
        if frame is None:
            raise FrameError(f"the stream ended after {at} of {nbytes} bytes")
        if at + len(frame) > nbytes:
            raise FrameError(f"a frame of {len(frame)} bytes at {at} passes {nbytes} bytes")
        yield at, frame
        at += len(frame)


class ParametersStub:
    """Client side of the raw methods.

    Every call has a deadline of ``timeout_s`` and raises ``grpc.RpcError``.
    ``buffer(nbytes)`` gives the writable buffer that values are received into, ``rows(nbytes)``
    that for rows of embedding tables.
    """

    def __init__(self, channel: grpc.Channel, address: str = "") -> None:
        """Call through a channel.

        Args:
            channel: to the server.
            address: ``host:port`` of the server; if given, calls go over direct connections
                to this host where that is possible.
        """
        self._open: Any = channel.unary_unary(f"/{SERVICE}/Open")
        self._streams: list[Any] = [
            channel.stream_stream(f"/{SERVICE}/{name}") for name in _METHODS
        ]
        self._address = address
        self._lock = threading.Lock()
        self._free: list[Connection] = []
        self._used: set[Connection] = set()
        self._closed = False
        self._streams_until = 0.0 if address else float("inf")

    def close(self) -> None:
        """Close all direct connections; calls that are under way break off."""
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

    @contextmanager
    def _call(
        self, name: str, header: Any, payloads: Sequence[memoryview], timeout_s: float
    ) -> Iterator[Frames]:
        """The frames of an answer."""
        number = _METHODS.index(name)
        connection = self._connection(timeout_s)
        if connection is None:
            yield self._streams[number](_stream(header, *payloads), timeout=timeout_s)
            return
        try:
            yield connection.call(number, header.SerializeToString(), payloads, timeout_s)
        except CallError:  # the whole answer was an error
            self._keep(connection)
            raise
        except OSError as error:
            self._drop(connection)
            self._close_free()  # the others are hardly better
            raise told(error, self._address) from error
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
        with self._lock:  # nobody breaks off what is closed: its number may be another's by then
            self._used.discard(connection)
            connection.close()

    def _connection(self, timeout_s: float) -> Connection | None:
        """A direct connection; None where calls have to go over gRPC."""
        with self._lock:
            if self._free:
                self._used.add(connection := self._free.pop())
                return connection
        if self._closed or time.monotonic() < self._streams_until:
            return None
        reply = self._open(b"", timeout=min(timeout_s, _CONNECT_S))
        port = pb.OpenReply.FromString(reply).direct_port
        host = self._address.rpartition(":")[0].strip("[]")
        try:
            if port:
                return self._use(Connection(host, port, min(timeout_s, _CONNECT_S)))
        except OSError as error:
            log.info("parameters of %s travel over gRPC: port %d: %s", host, port, error)
        self._streams_until = time.monotonic() + _TRY_AGAIN_S
        return None

    def _use(self, connection: Connection) -> Connection:
        with self._lock:
            self._used.add(connection)
            if self._closed:
                connection.break_off()
        return connection

    def initialize(
        self, header: pb.InitializeHeader, values: memoryview, timeout_s: float
    ) -> pb.InitializeReply:
        with self._call("Initialize", header, (values,), timeout_s) as frames:
            return pb.InitializeReply.FromString(_first(frames))

    def pull(
        self,
        header: pb.PullHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = _NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.PullReply:
        """Values are in ``buffer(reply.nbytes)`` when ``reply.nbytes`` is not 0; rows likewise."""
        with self._call("Pull", header, (ids,), timeout_s) as frames:
            reply = pb.PullReply.FromString(_first(frames))
            _receive(frames, reply, buffer, rows)
            return reply

    def push(
        self,
        header: pb.PushHeader,
        payloads: tuple[memoryview, ...],
        buffer: Buffer,
        timeout_s: float,
        rows: Buffer = bytearray,
    ) -> pb.PushReply:
        """Push gradient, state delta and rows.

        Newer values are in ``buffer(reply.nbytes)``, if any, and the next rows in
        ``rows(reply.rows_nbytes)``.
        """
        with self._call("Push", header, payloads, timeout_s) as frames:
            reply = pb.PushReply.FromString(_first(frames))
            _receive(frames, reply, buffer, rows)
            return reply

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        with self._call("PutRows", header, payloads, timeout_s) as frames:
            return pb.PutRowsReply.FromString(_first(frames))

    def scan_rows(
        self, header: pb.ScanRowsHeader, dim: int, timeout_s: float
    ) -> tuple[pb.ScanRowsReply, memoryview, memoryview]:
        """Some rows of a frozen version: the reply, their ids, and the rows of ``dim`` numbers."""
        with self._call("ScanRows", header, (), timeout_s) as frames:
            reply = pb.ScanRowsReply.FromString(_first(frames))
            if reply.count * (8 + 4 * dim) > MOST_ROW_BYTES:
                raise FrameError(f"{reply.count} rows were announced")
            ids, rows = (memoryview(bytearray(reply.count * size)) for size in (8, 4 * dim))
            fill(frames, ids)
            fill(frames, rows)
            return reply, ids, rows


def _receive(
    call: Iterator[bytes], reply: pb.PullReply | pb.PushReply, buffer: Buffer, rows: Buffer
) -> None:
    if reply.nbytes:
        fill(call, memoryview(buffer(reply.nbytes)))
    if reply.rows_nbytes:
        fill(call, memoryview(rows(reply.rows_nbytes)))


def _stream(header: Any, *payloads: memoryview) -> Iterator[bytes]:
    yield header.SerializeToString()
    for payload in payloads:
        yield from split(payload)


def _first(call: Iterator[bytes]) -> bytes:
    frame = next(call, None)
    if frame is None:
        raise FrameError("the stream ended before its header")
    return frame
