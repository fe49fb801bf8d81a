"""The services of the parameter plane's three roles, and their stubs.

A master that has the values itself serves ``PARAMETERS``. With parameter servers each of them
serves ``SHARD``, and the master ``COORDINATOR``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import grpc

from edl_proto.identity.credentials import Peer
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.frames import fill, messages
from edl_proto.transport.raw_calls import Pending, RawService, RawStub, finish, first_frame
from edl_proto.v1 import parameters_pb2 as pb
from edl_proto.v1 import servers_pb2

PARAMETERS = RawService(
    "edl.v1.Parameters", ("Initialize", "PutValues", "Pull", "Push", "PutRows", "ScanRows")
)
SHARD = RawService("edl.v1.Shard", ("Propose", "Prepare", "Read", "PutRows", "ScanRows"))
COORDINATOR = RawService(
    "edl.v1.Coordinator", ("CommitInitialValues", "Commit", "Permit", "Follow")
)

MAX_ROW_BYTES = 256 << 20
"""Limit on the bytes of rows and their ids in one message; more take several requests."""

NOTHING = memoryview(b"")

Buffer = Callable[[int], memoryview | bytearray]
"""Returns a writable buffer of the given size in bytes."""


class RowsStub(RawStub):
    """The calls about rows that ``PARAMETERS`` and ``SHARD`` have in common."""

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        with self.call("PutRows", header, payloads, timeout_s) as frames:
            return pb.PutRowsReply.FromString(first_frame(frames))

    def scan_rows(
        self, header: pb.ScanRowsHeader, dim: int, timeout_s: float
    ) -> tuple[pb.ScanRowsReply, memoryview, memoryview]:
        """Return some rows of a frozen version: reply, ids, and rows of ``dim`` numbers."""
        with self.call("ScanRows", header, (), timeout_s) as frames:
            reply = pb.ScanRowsReply.FromString(first_frame(frames))
            if reply.count * (8 + 4 * dim) > MAX_ROW_BYTES:
                raise FrameError(f"{reply.count} rows were announced")
            ids, rows = (memoryview(bytearray(reply.count * size)) for size in (8, 4 * dim))
            fill(frames, ids)
            fill(frames, rows)
            return reply, ids, rows


class ParametersStub(RowsStub):
    """The client side of ``PARAMETERS``.

    ``buffer(nbytes)`` gives the writable buffer that values are received into, ``rows(nbytes)``
    that for rows of embedding tables.
    """

    def __init__(self, channel: grpc.Channel, address: str = "", peer: Peer | None = None) -> None:
        super().__init__(PARAMETERS, channel, address, peer)

    def initialize(
        self, header: pb.InitializeHeader, values: memoryview, timeout_s: float
    ) -> pb.InitializeReply:
        with self.call("Initialize", header, (values,), timeout_s) as frames:
            return pb.InitializeReply.FromString(first_frame(frames))

    def put_values(
        self, header: pb.PutValuesHeader, values: memoryview, timeout_s: float
    ) -> pb.PutValuesReply:
        """Send the values of a replicated model, for which the master has asked."""
        with self.call("PutValues", header, (values,), timeout_s) as frames:
            return pb.PutValuesReply.FromString(first_frame(frames))

    def pull(
        self,
        header: pb.PullHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.PullReply:
        """Pull values into ``buffer(reply.nbytes)``, unless that is 0, and rows likewise."""
        with self.call("Pull", header, (ids,), timeout_s) as frames:
            reply = pb.PullReply.FromString(first_frame(frames))
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
        with self.call("Push", header, payloads, timeout_s) as frames:
            reply = pb.PushReply.FromString(first_frame(frames))
            _receive(frames, reply, buffer, rows)
            return reply


class ShardStub(RowsStub):
    """The client side of ``SHARD``; its buffers are those of ``ParametersStub``."""

    def __init__(self, channel: grpc.Channel, address: str = "", peer: Peer | None = None) -> None:
        super().__init__(SHARD, channel, address, peer)

    def propose(
        self, header: pb.ProposeHeader, values: memoryview, timeout_s: float
    ) -> pb.ProposeReply:
        with self.call("Propose", header, (values,), timeout_s) as frames:
            return pb.ProposeReply.FromString(first_frame(frames))

    def prepare(
        self, header: pb.PrepareHeader, payloads: Sequence[memoryview], timeout_s: float
    ) -> pb.PrepareReply:
        return finish(self.begin_prepare(header, payloads, timeout_s))

    def begin_prepare(
        self, header: pb.PrepareHeader, payloads: Sequence[memoryview], timeout_s: float
    ) -> Pending[pb.PrepareReply]:
        with self.begin("Prepare", header, payloads, timeout_s) as answer:
            yield
            return pb.PrepareReply.FromString(first_frame(answer()))

    def read(
        self,
        header: pb.ReadHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.ReadReply:
        return finish(self.begin_read(header, buffer, timeout_s, ids, rows))

    def begin_read(
        self,
        header: pb.ReadHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = NOTHING,
        rows: Buffer = bytearray,
    ) -> Pending[pb.ReadReply]:
        with self.begin("Read", header, (ids,), timeout_s) as answer:
            yield
            frames = answer()
            reply = pb.ReadReply.FromString(first_frame(frames))
            _receive(frames, reply, buffer, rows)
            return reply


class CoordinatorStub(RawStub):
    """The client side of ``COORDINATOR``."""

    def __init__(self, channel: grpc.Channel, address: str = "", peer: Peer | None = None) -> None:
        super().__init__(COORDINATOR, channel, address, peer)

    def commit_initial_values(
        self, request: pb.CommitInitialValuesRequest, timeout_s: float
    ) -> pb.CommitInitialValuesReply:
        with self.call("CommitInitialValues", request, (), timeout_s) as frames:
            return pb.CommitInitialValuesReply.FromString(first_frame(frames))

    def commit(self, request: pb.CommitRequest, timeout_s: float) -> pb.CommitReply:
        with self.call("Commit", request, (), timeout_s) as frames:
            return pb.CommitReply.FromString(first_frame(frames))

    def permit(self, request: pb.PermitRequest, timeout_s: float) -> pb.PermitReply:
        with self.call("Permit", request, (), timeout_s) as frames:
            return pb.PermitReply.FromString(first_frame(frames))

    def follow(self, request: servers_pb2.FollowRequest) -> Iterator[servers_pb2.CommandEntry]:
        """Yield the entries of the command log, as they come, to its end.

        Raises:
            grpc.RpcError, FrameError: the connection has ended before.
        """
        with self.call("Follow", request, (), None) as frames:
            first_frame(frames)
            yield from map(servers_pb2.CommandEntry.FromString, messages(frames))


def _receive(
    frames: Iterator[bytes],
    reply: pb.PullReply | pb.PushReply | pb.ReadReply,
    buffer: Buffer,
    rows: Buffer,
) -> None:
    if reply.nbytes:
        fill(frames, memoryview(buffer(reply.nbytes)))
    if reply.rows_nbytes:
        fill(frames, memoryview(rows(reply.rows_nbytes)))
