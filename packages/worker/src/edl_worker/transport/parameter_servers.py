"""Parameter servers as the worker sees them: many that look like one.

Each has a part of the parameters, and the rows of its share of ids. A step goes to all of them at
the same time, in three exchanges: gradients are *staged* with the servers, the master says whether
they count, and the next values are pulled. See docs/adr/0010.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message

from edl_proto.errors import EdlError
from edl_proto.transport import channels
from edl_proto.transport.parameters import Buffer, FrameError, ParametersStub
from edl_proto.v1 import job_pb2, task_pb2
from edl_proto.v1 import parameters_pb2 as pb
from edl_worker.transport.partitions import (
    WHOLE,
    BufferChain,
    PartitionedIds,
    PayloadOffsets,
    dtype_of,
)

_CURSOR_BITS = 48
"""Of a cursor through the rows of one server; the bits above are the server's number."""

_NOTHING = memoryview(b"")

PASSING = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    )
)
"""What a call ends with when whoever should answer is away, starting, or being killed at this
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

    stub: ParametersStub
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
    """Has the methods of ``ParametersStub``, for a job whose parameters are served in parts.

    Args:
        master: decides.
        servers: where the parts are.
        model: the variables and tables.
        mark: orders that the master has given, as far as this worker has been told.
    """

    def __init__(
        self,
        master: ParametersStub,
        servers: Iterable[task_pb2.ParameterServer],
        model: task_pb2.ModelDescription,
        mark: LogIndex,
    ) -> None:
        self._master = master
        self._channels = []
        self._servers: list[_Server] = []
        for server in servers:
            channel = channels.connect(server.address)
            self._channels.append(channel)
            stub = ParametersStub(channel, server.address)
            self._servers.append(_Server(stub, server.address, server.start, server.stop))
        self._places = PayloadOffsets.of(model.variables)
        self._dims = [table.dim for table in model.tables]
        self._mark = mark
        self._threads = ThreadPoolExecutor(len(self._servers), thread_name_prefix="servers")

    def close(self) -> None:
        """Let the connections to the servers go; the master's is not these'."""
        for server in self._servers:
            server.stub.close()
        for channel in self._channels:
            channel.close()
        self._threads.shutdown(wait=False)

    # --- the methods of the stub -----------------------------------------------------------

    def initialize(
        self, header: pb.InitializeHeader, values: memoryview, timeout_s: float
    ) -> pb.InitializeReply:
        def offer(number: int, server: _Server) -> None:
            part = _like(header, nbytes=server.nbytes)
            server.stub.initialize(part, values[server.start : server.stop], timeout_s)

        self._all(header, timeout_s, offer)
        decided = self._master.initialize(_like(header, nbytes=0), _NOTHING, timeout_s)
        self._mark.advance(decided.mark)
        return decided

    def pull(
        self,
        header: pb.PullHeader,
        buffer: Buffer,
        timeout_s: float,
        ids: memoryview = _NOTHING,
        rows: Buffer = bytearray,
    ) -> pb.PullReply:
        reply = pb.PullReply(initialized=True)
        if not header.frozen:
            bare = _like(header)
            del bare.rows[:]
            reply = self._master.pull(bare, _refuse, timeout_s)
            self._mark.advance(reply.mark)
            if not reply.initialized or (header.HasField("slot_for") and not reply.slot_granted):
                return reply
        newest = header.HasField("have_version") and reply.version == header.have_version
        fetched = self._fetch(
            pb.PullHeader(
                worker_id=header.worker_id,
                incarnation=header.incarnation,
                layout_fingerprint=header.layout_fingerprint,
                frozen=header.frozen,
                only_rows=newest or (bool(header.frozen) and header.HasField("have_version")),
                precision=header.precision,
            ),
            PartitionedIds(header.rows, ids, self._dims, len(self._servers)),
            buffer,
            rows,
            timeout_s,
        )
        if header.frozen:
            reply.version = fetched.version
        return _with(reply, fetched)

    def push(
        self,
        header: pb.PushHeader,
        payloads: tuple[memoryview, ...],
        buffer: Buffer,
        timeout_s: float,
        rows: Buffer = bytearray,
    ) -> pb.PushReply:
        dense = BufferChain(payloads)
        at = header.gradient_nbytes + header.state_nbytes
        ids_at, next_at = at, at + 8 * sum(one.count for one in header.rows)
        values_at = next_at + 8 * sum(one.count for one in header.next_rows)
        gradients = PartitionedIds(
            header.rows, dense.whole(ids_at, next_at), self._dims, len(self._servers)
        )
        dtype = dtype_of(header.precision)
        values = gradients.divide(dense.whole(values_at, dense.nbytes), dtype)
        mark = self._mark.latest
        bare = _like(header, gradient_nbytes=0, state_nbytes=0)
        del bare.rows[:]
        del bare.next_rows[:]

        def stage(number: int, server: _Server) -> pb.PushReply:
            start, stop, border = (
                self._places.at(place, header.precision)
                for place in (server.start, server.stop, self._places.gradient)
            )
            gradient = dense.pieces(min(start, border), min(stop, border))
            state: list[memoryview] = []
            if header.state_nbytes:
                state = dense.pieces(max(start, border), max(stop, border))
            part = _like(
                bare,
                gradient_nbytes=sum(piece.nbytes for piece in gradient),
                state_nbytes=sum(piece.nbytes for piece in state),
                pull=False,
                mark=mark,
            )
            part.rows.extend(gradients.counts(number))
            sent = *gradient, *state, gradients.of(number), values[number]
            return server.stub.push(part, sent, _refuse, timeout_s)

        staged = self._all(header, timeout_s, stage)
        if any(reply.outcome == pb.INVALID for reply in staged):
            return pb.PushReply(outcome=pb.INVALID)
        bare.squares.extend(map(sum, zip(*(reply.squares for reply in staged), strict=True)))
        reply = self._master.push(bare, (), _refuse, timeout_s)
        self._mark.advance(reply.mark)
        if not reply.slot_granted:
            return reply
        fetched = self._fetch(
            pb.PullHeader(
                worker_id=header.worker_id,
                incarnation=header.incarnation,
                layout_fingerprint=header.layout_fingerprint,
                only_rows=reply.version == header.base_version,
                precision=header.answer_precision,
            ),
            PartitionedIds(
                header.next_rows, dense.whole(next_at, values_at), self._dims, len(self._servers)
            ),
            buffer,
            rows,
            timeout_s,
        )
        return _with(reply, fetched)

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        ids = PartitionedIds([header.rows], payloads[0], self._dims, len(self._servers))
        values = ids.divide(payloads[1], dtype_of(job_pb2.FLOAT32))

        def put(number: int, server: _Server) -> bool:
            part = _like(header)
            (count,) = ids.counts(number)
            part.rows.CopyFrom(count)
            return server.stub.put_rows(part, (ids.of(number), values[number]), timeout_s).accepted

        return pb.PutRowsReply(accepted=all(self._all(header, timeout_s, put)))

    def scan_rows(
        self, header: pb.ScanRowsHeader, dim: int, timeout_s: float
    ) -> tuple[pb.ScanRowsReply, memoryview, memoryview]:
        """One server after the other."""
        number, cursor = divmod(header.cursor, 1 << _CURSOR_BITS)
        part = _like(header, cursor=cursor, mark=self._mark.latest)
        reply, ids, rows = self._servers[number].stub.scan_rows(part, dim, timeout_s)
        if reply.more:
            reply.cursor += number << _CURSOR_BITS
        elif number + 1 < len(self._servers):
            reply.cursor, reply.more = (number + 1) << _CURSOR_BITS, True
        return reply, ids, rows

    # --- inside ----------------------------------------------------------------------------

    def _fetch(
        self,
        header: pb.PullHeader,
        wanted: PartitionedIds,
        buffer: Buffer,
        rows: Buffer,
        timeout_s: float,
    ) -> pb.PullReply:
        """Values and rows of all servers, each where it belongs."""
        header.mark = self._mark.latest
        precision, dtype = header.precision, dtype_of(header.precision)
        total = self._places.at(self._servers[-1].stop, precision)
        values = memoryview(buffer(total)) if total and not header.only_rows else _NOTHING
        found = [np.empty(wanted.row_nbytes(n, dtype), np.uint8) for n in range(len(self._servers))]

        def fetch(number: int, server: _Server) -> pb.PullReply:
            part = _like(header)
            part.rows.extend(wanted.counts(number))
            start, stop = (self._places.at(at, precision) for at in (server.start, server.stop))

            def here(nbytes: int) -> memoryview:
                if nbytes == server.nbytes != stop - start:
                    return memoryview(bytearray(nbytes))  # whole: what came is asked for anew
                return _sized(values[start:stop], nbytes)

            def here_rows(nbytes: int) -> memoryview:
                if nbytes == wanted.row_nbytes(number, WHOLE) != found[number].nbytes:
                    return memoryview(bytearray(nbytes))
                return _sized(found[number].data, nbytes)

            return server.stub.pull(part, here, timeout_s, wanted.of(number), here_rows)

        replies = self._all(header, timeout_s, fetch)
        if any(reply.precision != precision for reply in replies):
            if precision == job_pb2.FLOAT32:
                raise FrameError("values came in another precision than was asked for")
            # One has a number that has no place in 16 bits: all are to come alike.
            header.precision = job_pb2.FLOAT32
            return self._fetch(header, wanted, buffer, rows, timeout_s)
        if rows_nbytes := sum(reply.rows_nbytes for reply in replies):
            wanted.join(found, memoryview(rows(rows_nbytes)), dtype)
        return pb.PullReply(
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
            self._master.pull(
                pb.PullHeader(
                    worker_id=header.worker_id,
                    incarnation=header.incarnation,
                    layout_fingerprint=header.layout_fingerprint,
                ),
                _refuse,
                timeout_s,
            )
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


class LogIndex:
    """How many orders one master has given to parameter servers, as far as is known here.

    Each incarnation has one of its own: a mark of another one would name orders that do not come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.latest = 0

    def advance(self, mark: int) -> None:
        """An answer of the master has told this; several threads ask."""
        with self._lock:
            self.latest = max(self.latest, mark)


M = TypeVar("M", bound=Message)


def _like(header: M, **fields: Any) -> M:
    """A copy of a header with other fields."""
    copy = type(header)()
    copy.CopyFrom(header)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


R = TypeVar("R", pb.PullReply, pb.PushReply)


def _with(reply: R, fetched: pb.PullReply) -> R:
    """The master's reply, with what the servers have sent."""
    reply.nbytes, reply.rows_nbytes = fetched.nbytes, fetched.rows_nbytes
    reply.precision = fetched.precision
    return reply


def _refuse(nbytes: int) -> memoryview:
    raise FrameError(f"{nbytes} bytes came that nobody has asked for")


def _sized(buffer: memoryview, nbytes: int) -> memoryview:
    if buffer.nbytes != nbytes:
        raise FrameError(f"{nbytes} bytes came for a part of {buffer.nbytes}")
    return buffer
