"""Client of a job's parameter servers: many that look like one.

Each has a part of the parameters, and the rows of its share of ids. A step goes to all of them at
the same time, in three exchanges: every server *prepares* its part of the gradient, the coordinator
*commits* the push, and the next values are *read* from every server. See docs/adr/0010 and 0017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import numpy as np

from edl_proto.errors import EdlError
from edl_proto.transport import channels
from edl_proto.transport.parameters import NOTHING, Buffer, CoordinatorStub, ShardStub
from edl_proto.transport.tcp import FrameError
from edl_proto.v1 import job_pb2
from edl_proto.v1 import parameters_pb2 as pb
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import ShardAddress
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.messages import caller_fields, copy_with, exactly, with_payload
from edl_worker.transport.partitions import (
    WHOLE,
    BufferChain,
    PartitionedIds,
    PayloadOffsets,
    dtype_of,
)

_CURSOR_BITS = 48
"""Of a cursor through the rows of one server; the bits above are the server's number."""

PASSING = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    )
)
"""How a call ends when the process that should answer is away, starting, or being killed at this
moment."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server and its part.

    Attributes:
        stub: the server.
        address: where it is.
        start, stop: its bytes of a payload of parameters.
    """

    stub: ShardStub
    address: str
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class ParameterServerLostError(Exception):
    """A server does not answer, though the master of its incarnation does.

    Args:
        number: of the server.
        address: where it should be.
        cause: what the call ended with.
    """

    def __init__(self, number: int, address: str, cause: str) -> None:
        super().__init__(f"parameter server {number} at {address}: {cause}")
        self.number, self.address, self.cause = number, address, cause


class ParameterServerClient:
    """Has the methods of ``ParametersStub``, for a job whose parameters are in parameter servers.

    Args:
        coordinator: decides.
        servers: where the parts are.
        model: the variables and tables.
        log_index: commands that the coordinator has appended, as far as this worker knows.
    """

    def __init__(
        self,
        coordinator: CoordinatorStub,
        servers: Iterable[ShardAddress],
        model: ModelDescription,
        log_index: LogIndex,
    ) -> None:
        self._coordinator = coordinator
        self._channels = []
        self._servers: list[_Server] = []
        for server in servers:
            channel = channels.connect(server.address)
            self._channels.append(channel)
            stub = ShardStub(channel, server.address)
            self._servers.append(_Server(stub, server.address, server.start, server.stop))
        self._places = PayloadOffsets.of(model.variables)
        self._dims = [table.dim for table in model.tables]
        self._log_index = log_index
        self._threads = ThreadPoolExecutor(len(self._servers), thread_name_prefix="servers")

    def close(self) -> None:
        """Close all connections."""
        self._coordinator.close()
        for server in self._servers:
            server.stub.close()
        for channel in self._channels:
            channel.close()
        self._threads.shutdown(wait=False)

    # --- the methods of the stub -----------------------------------------------------------

    def initialize(
        self, header: pb.InitializeHeader, values: memoryview, timeout_s: float
    ) -> pb.InitializeReply:
        """Propose the values to all servers, then have the coordinator commit them."""

        def propose(number: int, server: _Server) -> None:
            part = pb.ProposeHeader(**caller_fields(header), nbytes=server.nbytes)
            server.stub.propose(part, values[server.start : server.stop], timeout_s)

        self._all(header, timeout_s, propose)
        request = pb.CommitInitialValuesRequest(**caller_fields(header))
        committed = self._coordinator.commit_initial_values(request, timeout_s)
        self._log_index.advance(committed.log_index)
        return pb.InitializeReply(accepted=committed.accepted, version=committed.version)

    def pull(
        self,
        header: pb.PullHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.PullReply:
        """Ask the coordinator for a permit and the version, then read from all servers."""
        reply = pb.PullReply(initialized=True)
        if not header.frozen:
            request = pb.PermitRequest(**caller_fields(header), wait_s=header.wait_s)
            if header.HasField("permit_for"):
                request.permit_for.CopyFrom(header.permit_for)
            permit = self._coordinator.permit(request, timeout_s)
            self._log_index.advance(permit.log_index)
            reply.initialized, reply.version = permit.initialized, permit.version
            reply.permit_granted = permit.permit_granted
            if not reply.initialized or (
                request.HasField("permit_for") and not permit.permit_granted
            ):
                return reply
        is_newest = header.HasField("have_version") and reply.version == header.have_version
        wanted = pb.ReadHeader(
            **caller_fields(header),
            frozen=header.frozen,
            only_rows=is_newest or (bool(header.frozen) and header.HasField("have_version")),
            precision=header.precision,
        )
        row_ids = PartitionedIds(header.rows, ids, self._dims, len(self._servers))
        fetched = self._read(wanted, row_ids, buffer, rows, timeout_s)
        if header.frozen:
            reply.version = fetched.version
        return with_payload(reply, fetched)

    def push(
        self,
        header: pb.PushHeader,
        payloads: tuple[memoryview, ...],
        buffer: Buffer,
        timeout_s: float,
        rows: Buffer = bytearray,
    ) -> pb.PushReply:
        """Prepare the gradient at all servers, have it committed, then read the next values."""
        gradient = header.gradient
        dense = BufferChain(payloads)
        ids_at = gradient.nbytes + gradient.state_nbytes
        next_at = ids_at + 8 * sum(one.count for one in gradient.rows)
        values_at = next_at + 8 * sum(one.count for one in header.next.rows)
        squares = self._prepare(header, dense, (ids_at, next_at, values_at), timeout_s)
        if squares is None:
            return pb.PushReply(outcome=pb.INVALID)
        request = pb.CommitRequest(
            **caller_fields(header), claim=header.claim, step=header.step, squares=squares
        )
        if header.HasField("next"):
            request.permit_wait_s = header.next.wait_s
        committed = self._coordinator.commit(request, timeout_s)
        self._log_index.advance(committed.log_index)
        reply = pb.PushReply(
            outcome=committed.outcome,
            version=committed.version,
            staleness=committed.staleness,
            permit_granted=committed.permit_granted,
        )
        if not committed.permit_granted:
            return reply
        wanted = pb.ReadHeader(
            **caller_fields(header),
            only_rows=committed.version == header.claim.base_version,
            precision=header.next.precision,
        )
        next_ids = dense.whole(next_at, values_at)
        row_ids = PartitionedIds(header.next.rows, next_ids, self._dims, len(self._servers))
        return with_payload(reply, self._read(wanted, row_ids, buffer, rows, timeout_s))

    def _prepare(
        self,
        header: pb.PushHeader,
        dense: BufferChain,
        places: tuple[int, int, int],
        timeout_s: float,
    ) -> list[float] | None:
        """Send every server its part of a gradient; the sums of squares, or None if not finite.

        Args:
            header: of the push.
            dense: its payload.
            places: where ids, ids of the next rows and values of rows begin.
            timeout_s: for each server.
        """
        gradient, log_index = header.gradient, self._log_index.latest
        precision = gradient.precision
        ids_at, next_at, values_at = places
        ids = PartitionedIds(
            gradient.rows, dense.whole(ids_at, next_at), self._dims, len(self._servers)
        )
        values = ids.divide(dense.whole(values_at, dense.nbytes), dtype_of(precision))

        def prepare(number: int, server: _Server) -> pb.PrepareReply:
            start, stop, border = (
                self._places.at(place, precision)
                for place in (server.start, server.stop, self._places.gradient)
            )
            trainable = dense.pieces(min(start, border), min(stop, border))
            state: list[memoryview] = []
            if gradient.state_nbytes:
                state = dense.pieces(max(start, border), max(stop, border))
            part = pb.PrepareHeader(
                **caller_fields(header),
                lease=header.claim.lease,
                minibatch=header.claim.minibatch,
                gradient=pb.GradientHeader(
                    nbytes=sum(piece.nbytes for piece in trainable),
                    state_nbytes=sum(piece.nbytes for piece in state),
                    rows=ids.counts(number),
                    precision=precision,
                ),
                log_index=log_index,
            )
            sent = *trainable, *state, ids.of(number), values[number]
            return server.stub.prepare(part, sent, timeout_s)

        replies = self._all(header, timeout_s, prepare)
        if not all(reply.finite for reply in replies):
            return None
        return list(map(sum, zip(*(reply.squares for reply in replies), strict=True)))

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        ids = PartitionedIds([header.rows], payloads[0], self._dims, len(self._servers))
        values = ids.divide(payloads[1], dtype_of(job_pb2.FLOAT32))

        def put(number: int, server: _Server) -> bool:
            part = copy_with(header)
            (count,) = ids.counts(number)
            part.rows.CopyFrom(count)
            return server.stub.put_rows(part, (ids.of(number), values[number]), timeout_s).accepted

        return pb.PutRowsReply(accepted=all(self._all(header, timeout_s, put)))

    def scan_rows(
        self, header: pb.ScanRowsHeader, dim: int, timeout_s: float
    ) -> tuple[pb.ScanRowsReply, memoryview, memoryview]:
        """One server after the other."""
        number, cursor = divmod(header.cursor, 1 << _CURSOR_BITS)
        part = copy_with(header, cursor=cursor, log_index=self._log_index.latest)
        reply, ids, rows = self._servers[number].stub.scan_rows(part, dim, timeout_s)
        if reply.more:
            reply.cursor += number << _CURSOR_BITS
        elif number + 1 < len(self._servers):
            reply.cursor, reply.more = (number + 1) << _CURSOR_BITS, True
        return reply, ids, rows

    # --- inside ----------------------------------------------------------------------------

    def _read(
        self,
        header: pb.ReadHeader,
        wanted: PartitionedIds,
        buffer: Buffer,
        rows: Buffer,
        timeout_s: float,
    ) -> pb.ReadReply:
        """Values and rows of all servers, each where it belongs."""
        header.log_index = self._log_index.latest
        precision, dtype = header.precision, dtype_of(header.precision)
        total = self._places.at(self._servers[-1].stop, precision)
        values = memoryview(buffer(total)) if total and not header.only_rows else NOTHING
        found = [np.empty(wanted.row_nbytes(n, dtype), np.uint8) for n in range(len(self._servers))]

        def fetch(number: int, server: _Server) -> pb.ReadReply:
            part = copy_with(header)
            part.rows.extend(wanted.counts(number))
            start, stop = (self._places.at(at, precision) for at in (server.start, server.stop))

            def here(nbytes: int) -> memoryview:
                if nbytes == server.nbytes != stop - start:
                    return memoryview(bytearray(nbytes))  # whole: what came is asked for anew
                return exactly(values[start:stop], nbytes)

            def here_rows(nbytes: int) -> memoryview:
                if nbytes == wanted.row_nbytes(number, WHOLE) != found[number].nbytes:
                    return memoryview(bytearray(nbytes))
                return exactly(found[number].data, nbytes)

            return server.stub.read(part, here, timeout_s, wanted.of(number), here_rows)

        replies = self._all(header, timeout_s, fetch)
        if any(reply.precision != precision for reply in replies):
            if precision == job_pb2.FLOAT32:
                raise FrameError("values came in another precision than was asked for")
            # One has a number that has no place in 16 bits: all are to come alike.
            header.precision = job_pb2.FLOAT32
            return self._read(header, wanted, buffer, rows, timeout_s)
        if rows_nbytes := sum(reply.rows_nbytes for reply in replies):
            wanted.join(found, memoryview(rows(rows_nbytes)), dtype)
        return pb.ReadReply(
            version=replies[0].version,
            nbytes=sum(reply.nbytes for reply in replies),
            rows_nbytes=rows_nbytes,
            precision=precision,
        )

    def _all(self, header: Any, timeout_s: float, act: Callable[[int, _Server], T]) -> list[T]:
        """Do something with all servers at the same time.

        A server that does not answer may be gone together with the master that started it: then
        the new one says so.

        Raises:
            ParameterServerLostError: a server cannot be reached.
            grpc.RpcError, FrameError: a server has refused, or the master cannot be reached.
        """
        futures = [
            self._threads.submit(act, number, server) for number, server in enumerate(self._servers)
        ]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if not errors:
            return [future.result() for future in futures]
        if any(isinstance(error, grpc.RpcError | FrameError) for error in errors):
            self._coordinator.permit(pb.PermitRequest(**caller_fields(header)), timeout_s)
        for number, future in enumerate(futures):
            error = future.exception()
            if (
                isinstance(error, grpc.RpcError)
                and error.code() in PASSING
                and EdlError.from_rpc(error) is None
            ):
                cause = f"{error.code().name}: {error.details()}"
                raise ParameterServerLostError(
                    number, self._servers[number].address, cause
                ) from error
        raise errors[0]
