"""Parameter servers as the worker sees them: many that look like one.

Each has a part of the parameters, and the rows of its share of ids. A step goes to all of them at
the same time, in three exchanges: gradients are *staged* with the servers, the master says whether
they count, and the next values are pulled. See docs/adr/0010.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from edl_proto import channels
from edl_proto.buckets import server_of
from edl_proto.parameters import Buffer, FrameError, ParametersStub
from edl_proto.v1 import parameters_pb2 as pb
from edl_proto.v1 import task_pb2

_CURSOR_BITS = 48
"""Of a cursor through the rows of one server; the bits above are the server's number."""

_NOTHING = memoryview(b"")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server and its part.

    Attributes:
        stub: the server.
        start, stop: its bytes of a payload of parameters.
    """

    stub: ParametersStub
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class ParameterServers:
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
        mark: Mark,
    ) -> None:
        self._master = master
        self._channels = []
        self._servers: list[_Server] = []
        for server in servers:
            channel = channels.connect(server.address)
            self._channels.append(channel)
            self._servers.append(_Server(ParametersStub(channel), server.start, server.stop))
        self._gradient_nbytes = sum(_nbytes(v) for v in model.variables if v.trainable)
        self._dims = [table.dim for table in model.tables]
        self._mark = mark
        self._threads = ThreadPoolExecutor(len(self._servers), thread_name_prefix="servers")

    def close(self) -> None:
        """Let the connections go."""
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
        self._mark.heed(decided.mark)
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
            self._mark.heed(reply.mark)
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
            ),
            Ids(header.rows, ids, self._dims, len(self._servers)),
            buffer,
            rows,
            timeout_s,
        )
        if header.frozen:
            reply.version = fetched.version
        reply.nbytes, reply.rows_nbytes = fetched.nbytes, fetched.rows_nbytes
        return reply

    def push(
        self,
        header: pb.PushHeader,
        payloads: tuple[memoryview, ...],
        buffer: Buffer,
        timeout_s: float,
        rows: Buffer = bytearray,
    ) -> pb.PushReply:
        dense = Payload(payloads)
        at = header.gradient_nbytes + header.state_nbytes
        ids_at, next_at = at, at + 8 * sum(one.count for one in header.rows)
        values_at = next_at + 8 * sum(one.count for one in header.next_rows)
        gradients = Ids(header.rows, dense.whole(ids_at, next_at), self._dims, len(self._servers))
        values = gradients.divide(dense.whole(values_at, dense.nbytes))
        mark = self._mark.latest
        bare = _like(header, gradient_nbytes=0, state_nbytes=0)
        del bare.rows[:]
        del bare.next_rows[:]

        def stage(number: int, server: _Server) -> pb.PushReply:
            border = self._gradient_nbytes
            gradient = dense.pieces(min(server.start, border), min(server.stop, border))
            state: list[memoryview] = []
            if header.state_nbytes:
                state = dense.pieces(max(server.start, border), max(server.stop, border))
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
        self._mark.heed(reply.mark)
        if not reply.slot_granted:
            return reply
        fetched = self._fetch(
            pb.PullHeader(
                worker_id=header.worker_id,
                incarnation=header.incarnation,
                layout_fingerprint=header.layout_fingerprint,
                only_rows=reply.version == header.base_version,
            ),
            Ids(header.next_rows, dense.whole(next_at, values_at), self._dims, len(self._servers)),
            buffer,
            rows,
            timeout_s,
        )
        reply.nbytes, reply.rows_nbytes = fetched.nbytes, fetched.rows_nbytes
        return reply

    def put_rows(
        self, header: pb.PutRowsHeader, payloads: tuple[memoryview, ...], timeout_s: float
    ) -> pb.PutRowsReply:
        ids = Ids([header.rows], payloads[0], self._dims, len(self._servers))
        values = ids.divide(payloads[1])

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
        wanted: Ids,
        buffer: Buffer,
        rows: Buffer,
        timeout_s: float,
    ) -> pb.PullReply:
        """Values and rows of all servers, each where it belongs."""
        header.mark = self._mark.latest
        total = self._servers[-1].stop
        values = memoryview(buffer(total)) if total and not header.only_rows else _NOTHING
        found = [np.empty(wanted.row_nbytes(n), np.uint8) for n in range(len(self._servers))]

        def fetch(number: int, server: _Server) -> pb.PullReply:
            part = _like(header)
            part.rows.extend(wanted.counts(number))

            def here(nbytes: int) -> memoryview:
                return _sized(values[server.start : server.stop], nbytes)

            def here_rows(nbytes: int) -> memoryview:
                return _sized(found[number].data, nbytes)

            return server.stub.pull(part, here, timeout_s, wanted.of(number), here_rows)

        replies = self._all(header, timeout_s, fetch)
        if rows_nbytes := sum(reply.rows_nbytes for reply in replies):
            wanted.join(found, memoryview(rows(rows_nbytes)))
        return pb.PullReply(
            version=replies[0].version,
            nbytes=sum(reply.nbytes for reply in replies),
            rows_nbytes=rows_nbytes,
        )

    def _all(self, header: Any, timeout_s: float, act: Callable[[int, _Server], T]) -> list[T]:
        """Do something with all servers at the same time.

        A server that does not answer may be gone together with the master that started it: then
        the new one says so.
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
        raise errors[0]


class Mark:
    """How many orders one master has given to parameter servers, as far as is known here.

    Each incarnation has one of its own: a mark of another one would name orders that do not come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.latest = 0

    def heed(self, mark: int) -> None:
        """An answer of the master has told this; several threads ask."""
        with self._lock:
            self.latest = max(self.latest, mark)


class Payload:
    """Pieces of memory as one."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = [piece.cast("B") for piece in pieces if piece.nbytes]
        self.nbytes = sum(piece.nbytes for piece in self._pieces)

    def pieces(self, start: int, stop: int) -> list[memoryview]:
        """Bytes ``start`` to ``stop``, not copied."""
        found, at = [], 0
        for piece in self._pieces:
            first, last = max(start - at, 0), min(stop - at, piece.nbytes)
            if first < last:
                found.append(piece[first:last])
            at += piece.nbytes
        return found

    def whole(self, start: int, stop: int) -> memoryview:
        """The same as one piece, copied if it is not."""
        found = self.pieces(start, stop)
        if len(found) == 1:
            return found[0]
        return memoryview(b"".join(found))


class Ids:
    """Ids of rows of several tables, and which server has which.

    Args:
        tables: how many of which table.
        ids: int64, one table after the other.
        dims: numbers of a row, by table.
        servers: how many there are.
    """

    def __init__(
        self, tables: Iterable[pb.TableRows], ids: memoryview, dims: Sequence[int], servers: int
    ) -> None:
        self._tables = [(one.table, one.count) for one in tables]
        self._dims = dims
        self._servers = servers
        flat = np.frombuffer(ids, np.int64) if ids.nbytes else np.empty(0, np.int64)
        self._ids, self._places = [], []
        at = 0
        for _, count in self._tables:
            mine = flat[at : at + count]
            owners = server_of(mine, servers)
            # For each server the places of its ids among all of the table.
            places = np.argsort(owners, kind="stable")
            ends = np.searchsorted(owners[places], np.arange(1, servers))
            self._places.append(np.split(places, ends))
            self._ids.append(mine)
            at += count

    def counts(self, server: int) -> list[pb.TableRows]:
        """How many of which table one server has."""
        return [
            pb.TableRows(table=table, count=places[server].size)
            for (table, _), places in zip(self._tables, self._places, strict=True)
        ]

    def of(self, server: int) -> memoryview:
        """The ids that one server has."""
        parts = [ids[places[server]] for ids, places in zip(self._ids, self._places, strict=True)]
        return _bytes(np.concatenate(parts)) if parts else _NOTHING

    def row_nbytes(self, server: int) -> int:
        """Bytes of the rows that one server has."""
        return sum(
            4 * self._dims[table] * places[server].size
            for (table, _), places in zip(self._tables, self._places, strict=True)
        )

    def divide(self, rows: memoryview) -> list[memoryview]:
        """Rows of all ids, float32, for each server."""
        flat = np.frombuffer(rows, np.float32) if rows.nbytes else np.empty(0, np.float32)
        parts: list[list[npt.NDArray[Any]]] = [[] for _ in range(self._servers)]
        at = 0
        for (table, count), places in zip(self._tables, self._places, strict=True):
            dim = self._dims[table]
            mine = flat[at : at + count * dim].reshape(count, dim)
            at += count * dim
            for server, where in enumerate(places):
                parts[server].append(mine[where].reshape(-1))
        return [_bytes(np.concatenate(each)) if each else _NOTHING for each in parts]

    def join(self, found: Sequence[npt.NDArray[np.uint8]], rows: memoryview) -> None:
        """Put the rows of each server, float32, to the places of their ids."""
        flat = np.frombuffer(rows, np.float32)
        sources = [part.view(np.float32) for part in found]
        taken = [0] * len(sources)
        at = 0
        for (table, count), places in zip(self._tables, self._places, strict=True):
            dim = self._dims[table]
            mine = flat[at : at + count * dim].reshape(count, dim)
            at += count * dim
            for server, where in enumerate(places):
                end = taken[server] + where.size * dim
                mine[where] = sources[server][taken[server] : end].reshape(where.size, dim)
                taken[server] = end


M = TypeVar("M", bound=Message)


def _like(header: M, **fields: Any) -> M:
    """A copy of a header with other fields."""
    copy = type(header)()
    copy.CopyFrom(header)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def _nbytes(variable: task_pb2.Variable) -> int:
    return int(np.prod(variable.shape, dtype=np.int64)) * np.dtype(variable.dtype).itemsize


def _refuse(nbytes: int) -> memoryview:
    raise FrameError(f"{nbytes} bytes came that nobody has asked for")


def _sized(buffer: memoryview, nbytes: int) -> memoryview:
    if buffer.nbytes != nbytes:
        raise FrameError(f"{nbytes} bytes came for a part of {buffer.nbytes}")
    return buffer


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    if not array.size:
        return _NOTHING
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
