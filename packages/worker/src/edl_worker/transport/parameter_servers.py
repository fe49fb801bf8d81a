"""Client of a job's parameter servers: many that look like one.

Each has a part of the parameters, and the rows of its share of ids. A step goes to all of them at
the same time, in three exchanges: every server *prepares* its part of the gradient, the coordinator
*commits* the push, and the next values are *read* from every server. See docs/adr/0010 and 0017.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.parameters import NOTHING, Buffer, CoordinatorStub, ShardStub
from edl_proto.transport.raw_calls import Pending
from edl_worker.codec import parameters as codec
from edl_worker.codec.jobs import decode_precision
from edl_worker.core.exchange import (
    CallerIdentity,
    ParameterReply,
    PullRequest,
    PushReply,
    PushRequest,
    RowPage,
    ScanRequest,
    ShardReadRequest,
    TableRows,
)
from edl_worker.core.job import WirePrecision
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.registration import ShardAddress
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.partitions import (
    WHOLE,
    BufferChain,
    PartitionedIds,
    PayloadOffsets,
    PushPayload,
    dtype_of,
)
from edl_worker.transport.server_calls import CheckMaster, ServerCalls

_CURSOR_BITS = 48
"""Of a cursor through the rows of one server; the bits above are the server's number."""

_KNOWN_REQUESTS = 2
"""Rows are requested a step, or with overlap two, before their gradients are pushed."""


@dataclass(frozen=True, slots=True)
class _Server:
    """A server and its part.

    Attributes:
        stub: the server.
        start, stop: its bytes of a payload of parameters.
    """

    stub: ShardStub
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class ParameterServerClient:
    """A client like ``MasterParameters``, for a job with parameter servers.

    Args:
        coordinator: decides.
        servers: where the parts are.
        model: the variables and tables.
        log_index: commands that the coordinator has appended, as far as this worker knows.
        credentials: of this worker; None if the job is not secured.
    """

    def __init__(
        self,
        coordinator: CoordinatorStub,
        servers: Iterable[ShardAddress],
        model: ModelDescription,
        log_index: LogIndex,
        credentials: Credentials | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._channels = []
        self._servers: list[_Server] = []
        for number, server in enumerate(servers):
            peer = credentials.to(Role.SERVER, number) if credentials is not None else None
            channel = channels.connect(server.address, peer)
            self._channels.append(channel)
            stub = ShardStub(channel, server.address, peer)
            self._servers.append(_Server(stub, server.start, server.stop))
        self._places = PayloadOffsets.of(model.variables)
        self._dims = [table.dim for table in model.tables]
        self._log_index = log_index
        self._calls = ServerCalls(server.stub for server in self._servers)
        self._known: deque[PartitionedIds] = deque(maxlen=_KNOWN_REQUESTS)

    def close(self) -> None:
        """Close all connections."""
        self._coordinator.close()
        for server in self._servers:
            server.stub.close()
        for channel in self._channels:
            channel.close()
        self._calls.close()

    # --- the methods of MasterParameters ---------------------------------------------------

    def initialize(self, caller: CallerIdentity, values: memoryview, timeout_s: float) -> bool:
        """Propose the values to all servers, then have the coordinator commit them."""

        def propose(number: int) -> None:
            server = self._servers[number]
            header = codec.encode_propose(caller, server.nbytes)
            server.stub.propose(header, values[server.start : server.stop], timeout_s)

        self._calls.call(propose, self._check_master(caller, timeout_s))
        request = codec.encode_commit_initial_values(caller)
        committed = self._coordinator.commit_initial_values(request, timeout_s)
        self._log_index.advance(committed.log_index)
        return committed.accepted

    def pull(
        self,
        caller: CallerIdentity,
        request: PullRequest,
        ids: memoryview,
        buffers: tuple[Buffer, Buffer],
        wait_s: float,
        timeout_s: float,
    ) -> ParameterReply:
        """Ask the coordinator for a permit and the version, then read from all servers."""
        version, permit_granted = None, False
        if not request.frozen:
            header = codec.encode_permit(caller, request.permit_for, wait_s)
            permit = self._coordinator.permit(header, timeout_s)
            self._log_index.advance(permit.log_index)
            version, permit_granted = permit.version, permit.permit_granted
            is_refused = request.permit_for is not None and not permit_granted
            if not permit.initialized or is_refused:
                return ParameterReply(
                    version=version,
                    permit_granted=permit_granted,
                    initialized=permit.initialized,
                )
        wanted = ShardReadRequest(
            frozen=request.frozen,
            only_rows=request.have_version is not None
            and (bool(request.frozen) or version == request.have_version),
            precision=request.precision,
        )
        row_ids = self._partition(request.rows, ids)
        fetched = self._read(caller, wanted, row_ids, buffers, timeout_s)
        return replace(
            fetched,
            version=fetched.version if version is None else version,
            permit_granted=permit_granted,
        )

    def push(
        self,
        caller: CallerIdentity,
        request: PushRequest,
        payloads: tuple[memoryview, ...],
        buffers: tuple[Buffer, Buffer],
        wait_s: float,
        timeout_s: float,
    ) -> PushReply:
        """Prepare the gradient at all servers, have it committed, then read the next values."""
        payload = PushPayload(request, BufferChain(payloads))
        squares = self._prepare(caller, request, payload, timeout_s)
        if squares is None:
            return PushReply(outcome=PushOutcome.INVALID)
        commit = codec.encode_commit(caller, request, squares, wait_s)
        committed = self._coordinator.commit(commit, timeout_s)
        self._log_index.advance(committed.log_index)
        fetched = ParameterReply()
        if committed.permit_granted:
            wanted = ShardReadRequest(
                only_rows=committed.version == request.base_version,
                precision=request.reply_precision,
            )
            row_ids = self._partition(request.next_rows, payload.next_ids)
            fetched = self._read(caller, wanted, row_ids, buffers, timeout_s)
        return PushReply(
            outcome=codec.decode_outcome(committed.outcome),
            version=committed.version,
            nbytes=fetched.nbytes,
            rows_nbytes=fetched.rows_nbytes,
            precision=fetched.precision,
            permit_granted=committed.permit_granted,
        )

    def put_rows(
        self,
        caller: CallerIdentity,
        table: int,
        ids: memoryview,
        rows: memoryview,
        timeout_s: float,
    ) -> bool:
        counted = [TableRows(table, ids.nbytes // 8)]
        row_ids = PartitionedIds(counted, ids, self._dims, len(self._servers))
        values = row_ids.divide(rows, WHOLE)

        def put(number: int) -> bool:
            (part,) = row_ids.counts(number)
            header = codec.encode_put_rows(caller, table, part.count)
            payloads = row_ids.of(number), values[number]
            stub = self._servers[number].stub
            return stub.put_rows(header, payloads, timeout_s).accepted

        return all(self._calls.call(put, self._check_master(caller, timeout_s)))

    def scan_rows(self, caller: CallerIdentity, request: ScanRequest, timeout_s: float) -> RowPage:
        """Scan one server after the other."""
        number, cursor = divmod(request.cursor, 1 << _CURSOR_BITS)
        part = replace(request, cursor=cursor)
        header = codec.encode_scan(caller, part, self._log_index.latest)
        reply, ids, rows = self._servers[number].stub.scan_rows(header, request.dim, timeout_s)
        if reply.more:
            return RowPage(ids, rows, reply.cursor + (number << _CURSOR_BITS), True)
        is_last = number + 1 == len(self._servers)
        return RowPage(ids, rows, 0 if is_last else (number + 1) << _CURSOR_BITS, not is_last)

    # --- inside ----------------------------------------------------------------------------

    def _prepare(
        self, caller: CallerIdentity, request: PushRequest, payload: PushPayload, timeout_s: float
    ) -> list[float] | None:
        """Send every server its part of a gradient; the sums of squares, or None if not finite."""
        log_index, precision = self._log_index.latest, request.precision
        ids = self._partition(request.rows, payload.ids)
        values = ids.divide(payload.row_values, dtype_of(precision))

        def prepare(number: int) -> Pending[tuple[bool, Sequence[float]]]:
            server = self._servers[number]
            start, stop, border = (
                self._places.at(place, precision)
                for place in (server.start, server.stop, self._places.gradient)
            )
            trainable = payload.chain.pieces(min(start, border), min(stop, border))
            state: list[memoryview] = []
            if request.state_nbytes:
                state = payload.chain.pieces(max(start, border), max(stop, border))
            part = replace(
                request,
                gradient_nbytes=sum(piece.nbytes for piece in trainable),
                state_nbytes=sum(piece.nbytes for piece in state),
                rows=ids.counts(number),
            )
            sent = *trainable, *state, ids.of(number), values[number]
            header = codec.encode_prepare(caller, part, log_index)
            reply = yield from server.stub.begin_prepare(header, sent, timeout_s)
            return reply.finite, reply.squares

        nbytes = payload.chain.nbytes
        replies = self._calls.exchange(prepare, nbytes, self._check_master(caller, timeout_s))
        if not all(finite for finite, _ in replies):
            return None
        return list(map(sum, zip(*(squares for _, squares in replies), strict=True)))

    def _partition(self, tables: tuple[TableRows, ...], ids: memoryview) -> PartitionedIds:
        """Divide ids among the servers, unless that was done when their rows were requested."""
        for known in tuple(self._known):  # another thread may add to it
            if known.is_of(tables, ids):
                return known
        divided = PartitionedIds(tables, ids, self._dims, len(self._servers))
        self._known.append(divided)
        return divided

    def _check_master(self, caller: CallerIdentity, timeout_s: float) -> CheckMaster:
        return lambda: self._coordinator.permit(codec.encode_permit(caller), timeout_s)

    def _read(
        self,
        caller: CallerIdentity,
        request: ShardReadRequest,
        wanted: PartitionedIds,
        buffers: tuple[Buffer, Buffer],
        timeout_s: float,
    ) -> ParameterReply:
        """Read values and rows of all servers, each into its place."""
        buffer, rows = buffers
        log_index = self._log_index.latest
        precision, dtype = request.precision, dtype_of(request.precision)
        total = self._places.at(self._servers[-1].stop, precision)
        values = memoryview(buffer(total)) if total and not request.only_rows else NOTHING
        found = [np.empty(wanted.row_nbytes(n, dtype), np.uint8) for n in range(len(self._servers))]

        def fetch(number: int) -> Pending[ParameterReply]:
            server = self._servers[number]
            start, stop = (self._places.at(at, precision) for at in (server.start, server.stop))

            def values_buffer(nbytes: int) -> memoryview:
                if nbytes == server.nbytes != stop - start:
                    return memoryview(bytearray(nbytes))  # float32: all values are requested again
                return _check_size(values[start:stop], nbytes)

            def rows_buffer(nbytes: int) -> memoryview:
                if nbytes == wanted.row_nbytes(number, WHOLE) != found[number].nbytes:
                    return memoryview(bytearray(nbytes))
                return _check_size(found[number].data, nbytes)

            header = codec.encode_read(
                caller, replace(request, rows=wanted.counts(number)), log_index
            )
            reply = yield from server.stub.begin_read(
                header, values_buffer, timeout_s, wanted.of(number), rows_buffer
            )
            return ParameterReply(
                version=reply.version,
                nbytes=reply.nbytes,
                rows_nbytes=reply.rows_nbytes,
                precision=decode_precision(reply.precision),
            )

        nbytes = values.nbytes + sum(part.nbytes for part in found)
        replies = self._calls.exchange(fetch, nbytes, self._check_master(caller, timeout_s))
        if any(reply.precision is not precision for reply in replies):
            if precision is WirePrecision.FLOAT32:
                raise FrameError("values arrived in another precision than requested")
            # A server has a number that does not fit 16 bits: all servers send float32 instead.
            whole = replace(request, precision=WirePrecision.FLOAT32)
            return self._read(caller, whole, wanted, buffers, timeout_s)
        if rows_nbytes := sum(reply.rows_nbytes for reply in replies):
            wanted.join(found, memoryview(rows(rows_nbytes)), dtype)
        return ParameterReply(
            version=replies[0].version,
            nbytes=sum(reply.nbytes for reply in replies),
            rows_nbytes=rows_nbytes,
            precision=precision,
        )


def _check_size(buffer: memoryview, nbytes: int) -> memoryview:
    """Return the buffer, if it has the size of what comes.

    Raises:
        FrameError: it has another size.
    """
    if buffer.nbytes != nbytes:
        raise FrameError(f"{nbytes} bytes arrived for a part of {buffer.nbytes} bytes")
    return buffer
