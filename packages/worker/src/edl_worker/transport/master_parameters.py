"""The parameters of a job whose master has the values itself: one exchange for each request."""

from __future__ import annotations

import grpc

from edl_proto.identity.credentials import Peer
from edl_proto.transport.parameters import Buffer, ParametersStub
from edl_worker.codec import parameters as codec
from edl_worker.codec.replicas import encode_put_values
from edl_worker.core.exchange import (
    CallerIdentity,
    ParameterReply,
    PullRequest,
    PushReply,
    PushRequest,
    RowPage,
    ScanRequest,
)


class MasterParameters:
    """A client of the master's parameters.

    Args:
        channel: to the master.
        address: of the master.
        master: what has to be there; None: anything may be.
    """

    def __init__(self, channel: grpc.Channel, address: str, master: Peer | None = None) -> None:
        self._stub = ParametersStub(channel, address, master)

    def close(self) -> None:
        self._stub.close()

    def initialize(self, caller: CallerIdentity, values: memoryview, timeout_s: float) -> bool:
        header = codec.encode_initialize(caller, values.nbytes)
        return self._stub.initialize(header, values, timeout_s).accepted

    def put_values(
        self, caller: CallerIdentity, version: int, values: memoryview, timeout_s: float
    ) -> bool:
        header = encode_put_values(caller, version, values.nbytes)
        return self._stub.put_values(header, values, timeout_s).accepted

    def pull(
        self,
        caller: CallerIdentity,
        request: PullRequest,
        ids: memoryview,
        buffers: tuple[Buffer, Buffer],
        wait_s: float,
        timeout_s: float,
    ) -> ParameterReply:
        values, rows = buffers
        header = codec.encode_pull(caller, request, wait_s)
        return codec.decode_pull(self._stub.pull(header, values, timeout_s, ids, rows))

    def push(
        self,
        caller: CallerIdentity,
        request: PushRequest,
        payloads: tuple[memoryview, ...],
        buffers: tuple[Buffer, Buffer],
        wait_s: float,
        timeout_s: float,
    ) -> PushReply:
        values, rows = buffers
        header = codec.encode_push(caller, request, wait_s)
        return codec.decode_push(self._stub.push(header, payloads, values, timeout_s, rows))

    def put_rows(
        self,
        caller: CallerIdentity,
        table: int,
        ids: memoryview,
        rows: memoryview,
        timeout_s: float,
    ) -> bool:
        header = codec.encode_put_rows(caller, table, ids.nbytes // 8)
        return self._stub.put_rows(header, (ids, rows), timeout_s).accepted

    def scan_rows(self, caller: CallerIdentity, request: ScanRequest, timeout_s: float) -> RowPage:
        header = codec.encode_scan(caller, request)
        reply, ids, rows = self._stub.scan_rows(header, request.dim, timeout_s)
        return RowPage(ids, rows, reply.cursor, reply.more)
