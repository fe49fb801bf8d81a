"""The parameter plane on the wire: streams of raw frames.

A protobuf message around a large payload costs most of its bandwidth (docs/adr/0002), so
these methods are streams of ``bytes``: the first frame is a header message of
``parameters.proto``, each following frame is a plain piece of the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from edl_proto.v1 import parameters_pb2 as pb

SERVICE = "edl.v1.Parameters"
FRAME_BYTES = 1 << 20

MOST_ROW_BYTES = 256 << 20
"""Bytes of rows and their ids in one request or answer; more are asked for in several."""

_METHODS = ("Initialize", "Pull", "Push", "PutRows", "ScanRows")


_NOTHING = memoryview(b"")

Buffer = Callable[[int], memoryview | bytearray]
"""Gives a writable buffer of so many bytes."""


class FrameError(ValueError):
    """A stream whose frames do not add up to what its header announced."""


class ParametersServicer(Protocol):
    """What a server of parameters implements: frames in, frames out."""

    def initialize(
        self, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]: ...

    def pull(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]: ...

    def push(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]: ...

    def put_rows(
        self, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]: ...

    def scan_rows(
        self, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]: ...


def add_to_server(servicer: ParametersServicer, server: grpc.Server) -> None:
    """Register the raw methods on a server."""
    implemented = {
        "Initialize": servicer.initialize,
        "Pull": servicer.pull,
        "Push": servicer.push,
        "PutRows": servicer.put_rows,
        "ScanRows": servicer.scan_rows,
    }
    handlers: dict[str, Any] = {
        name: grpc.stream_stream_rpc_method_handler(implemented[name]) for name in _METHODS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


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
    at = 0
    while at < len(target):
        frame = next(frames, None)
        if frame is None:
            raise FrameError(f"the stream ended after {at} of {len(target)} bytes")
        end = at + len(frame)
        if end > len(target):
            raise FrameError(f"a frame of {len(frame)} bytes at {at} passes {len(target)} bytes")
        target[at:end] = frame
        at = end


class ParametersStub:
    """Client side of the raw methods.

    Every call has a deadline of ``timeout_s`` and raises ``grpc.RpcError``.
    ``buffer(nbytes)`` gives the writable buffer that values are received into, ``rows(nbytes)``
    that for rows of embedding tables.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        calls: list[Any] = [channel.stream_stream(f"/{SERVICE}/{name}") for name in _METHODS]
        self._initialize, self._pull, self._push, self._put_rows, self._scan_rows = calls

    def initialize(
        self, header: pb.InitializeHeader, values: memoryview, timeout_s: float
    ) -> pb.InitializeReply:
        call = self._initialize(_stream(header, values), timeout=timeout_s)
        return pb.InitializeReply.FromString(_first(call))

    def pull(
        self,
        header: pb.PullHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = _NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.PullReply:
        """Values are in ``buffer(reply.nbytes)`` when ``reply.nbytes`` is not 0; rows likewise."""
        call = self._pull(_stream(header, ids), timeout=timeout_s)
        reply = pb.PullReply.FromString(_first(call))
        _receive(call, reply, buffer, rows)
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
        call = self._push(_stream(header, *payloads), timeout=timeout_s)
        reply = pb.PushReply.FromString(_first(call))
        _receive(call, reply, buffer, rows)
        return reply

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        call = self._put_rows(_stream(header, *payloads), timeout=timeout_s)
        return pb.PutRowsReply.FromString(_first(call))

    def scan_rows(
        self, header: pb.ScanRowsHeader, dim: int, timeout_s: float
    ) -> tuple[pb.ScanRowsReply, memoryview, memoryview]:
        """Some rows of a frozen version: the reply, their ids, and the rows of ``dim`` numbers."""
        call = self._scan_rows(_stream(header), timeout=timeout_s)
        reply = pb.ScanRowsReply.FromString(_first(call))
        if reply.count * (8 + 4 * dim) > MOST_ROW_BYTES:
            raise FrameError(f"{reply.count} rows were announced")
        ids, rows = (memoryview(bytearray(reply.count * size)) for size in (8, 4 * dim))
        fill(call, ids)
        fill(call, rows)
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
