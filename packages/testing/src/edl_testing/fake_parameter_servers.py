"""A coordinator and its parameter servers over real gRPC, which record what they are sent.

They keep the rules that ``parameter_server_conformance`` states: the coordinator counts pushes and
writes a log of commands, and each server applies the log before it reads or prepares anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.transport.frames import fill
from edl_proto.transport.parameters import COORDINATOR, SHARD
from edl_proto.transport.raw_calls import RawService, add_to_server, listen
from edl_proto.v1 import job_pb2
from edl_proto.v1 import parameters_pb2 as pb
from edl_testing.fake_services import HALVES

WAIT_S = 200.0

Array = npt.NDArray[Any]
_PushKey = tuple[int, int]  # token, first minibatch


@dataclass(frozen=True)
class _Prepared:
    key: _PushKey
    gradient: Array
    state: Array
    rows: Mapping[int, Array]


@dataclass(frozen=True)
class _Command:
    """An entry of the log: initial values of a worker, a push, a frozen version, or nothing."""

    version: int
    worker: int = 0
    initializes: bool = False
    push: _PushKey | None = None
    frozen: str = ""


@dataclass
class FakeLog:
    """The command log of one job, and what the coordinator decides by.

    Attributes:
        incarnation, fingerprint: that callers have to name.
        version: of the values, after all commands.
        initialized: whether there are values.
        counts: minibatches in the model, by the token of each lease that is held.
    """

    incarnation: str = "inc"
    fingerprint: str = "layout"
    version: int = 0
    initialized: bool = False
    counts: dict[int, int] = field(default_factory=dict)
    commands: list[_Command] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def index(self) -> int:
        return len(self.commands)

    def append(self, command: _Command) -> None:
        with self.changed:
            self.commands.append(command)
            self.changed.notify_all()

    def skip_to(self, index: int) -> None:
        """Append commands that change nothing."""
        while self.index < index:
            self.append(_Command(self.version))

    def freeze(self, name: str) -> None:
        """Have all servers keep the present values under a name."""
        self.append(_Command(self.version, frozen=name))


class FakeRole:
    """One role of the parameter plane: records what it is asked.

    Args:
        direct: whether callers may leave gRPC.

    Attributes:
        headers, payloads: of all calls, in order.
        ways: how the calls came, ``direct`` or ``over gRPC``.
        error: raised by every call, if set.
        together: every call waits here for the others, if set.
    """

    service: RawService

    def __init__(self, log: FakeLog, *, direct: bool = True) -> None:
        self.log = log
        self.headers: list[Any] = []
        self.payloads: list[bytes] = []
        self.ways: set[str] = set()
        self.error: EdlError | None = None
        self.together: threading.Barrier | None = None
        errors = ErrorInterceptor(on_internal_error=lambda name, error: print(name, repr(error)))
        self._server = grpc.server(
            futures.ThreadPoolExecutor(8), options=channels.SERVER_OPTIONS, interceptors=[errors]
        )
        self._direct = listen(self.service, self, "127.0.0.1", errors.translate)
        add_to_server(self.service, self, self._server, self._direct if direct else None)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()
        self._direct.close()

    def _receive(self, header: Any, call: Any, frames: Iterator[bytes], *sizes: int) -> None:
        """Record a call, and refuse one that is meant for others."""
        self.ways.add("over gRPC" if isinstance(call, grpc.ServicerContext) else "direct")
        self.headers.append(header)
        payload = bytearray(sum(sizes))
        fill(frames, memoryview(payload))
        self.payloads.append(bytes(payload))
        if self.together is not None:
            self.together.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        if header.incarnation != self.log.incarnation:
            raise EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
        if header.layout_fingerprint != self.log.fingerprint:
            raise EdlError(ErrorCode.SHAPE_MISMATCH, "another layout")


class FakeCoordinator(FakeRole):
    """The master of parameter servers, in asynchronous mode.

    Attributes:
        grants_permits: whether workers that ask for a step permit get one.
    """

    service = COORDINATOR

    def __init__(self, log: FakeLog, *, direct: bool = True) -> None:
        super().__init__(log, direct=direct)
        self.grants_permits = True

    def commit_initial_values(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.CommitInitialValuesRequest.FromString(next(frames))
        self._receive(header, call, frames)
        log = self.log
        with log.changed:
            accepted = not log.initialized
            if accepted:
                log.initialized = True
                log.append(_Command(log.version, header.worker_id, initializes=True))
            yield pb.CommitInitialValuesReply(
                accepted=accepted, log_index=log.index
            ).SerializeToString()

    def permit(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.PermitRequest.FromString(next(frames))
        self._receive(header, call, frames)
        yield pb.PermitReply(
            initialized=self.log.initialized,
            permit_granted=header.HasField("permit_for") and self.grants_permits,
            version=self.log.version,
            log_index=self.log.index,
        ).SerializeToString()

    def follow(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        raise NotImplementedError("the servers of this coordinator share its log")

    def commit(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.CommitRequest.FromString(next(frames))
        self._receive(header, call, frames)
        log, claim = self.log, header.claim
        with log.changed:
            outcome = self._judge(claim)
            if outcome == pb.APPLIED:
                log.counts[claim.lease.token] += claim.minibatches or 1
                log.version += 1
                key = claim.lease.token, claim.minibatch
                log.append(_Command(log.version, header.worker_id, push=key))
            goes_on = outcome in (pb.APPLIED, pb.ALREADY_APPLIED, pb.STALE)
            yield pb.CommitReply(
                outcome=outcome,
                version=log.version,
                permit_granted=goes_on and header.HasField("permit_wait_s") and self.grants_permits,
                log_index=log.index,
            ).SerializeToString()

    def _judge(self, claim: pb.PushClaim) -> pb.PushOutcome.ValueType:
        count = self.log.counts.get(claim.lease.token)
        if count is None:
            return pb.REFUSED
        if claim.minibatch + (claim.minibatches or 1) <= count:
            return pb.ALREADY_APPLIED
        if claim.minibatch != count:
            return pb.OUT_OF_ORDER
        return pb.STALE if claim.base_version > self.log.version else pb.APPLIED


class FakeShard(FakeRole):
    """A parameter server with a part of the values, all float32.

    Args:
        trainable, state: how many numbers of each kind it has.
        dim: numbers of a row of the only table.

    Attributes:
        rate: learning rate of SGD, which is applied.
        values: those of the trainable variables, then state.
        rows: of the table, by id; others are zeros.
        initialized: whether it has values; without them it reads nothing.
        finds_finite: whether any gradient is finite.
    """

    service = SHARD

    def __init__(
        self, log: FakeLog, trainable: int, state: int, dim: int, *, direct: bool = True
    ) -> None:
        super().__init__(log, direct=direct)
        self.trainable, self.dim = trainable, dim
        self.rate = np.float32(1.0)
        self.values: Array = np.zeros(trainable + state, np.float32)
        self.rows: dict[int, Array] = {}
        self.finds_finite = True
        self.initialized = False
        self.version = 0
        self._applied = 0
        self._proposed: dict[int, Array] = {}
        self._prepared: dict[int, _Prepared] = {}  # by worker
        self._frozen: dict[str, tuple[int, Array, dict[int, Array]]] = {}

    def restore(self, values: Array, rows: Mapping[int, Array]) -> None:
        """Take these values as those of the coordinator's version."""
        self.initialized, self.version, self._applied = True, self.log.version, self.log.index
        self.values, self.rows = values.copy(), dict(rows)

    # --- calls -----------------------------------------------------------------------------

    def propose(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.ProposeHeader.FromString(next(frames))
        self._receive(header, call, frames, header.nbytes)
        if header.nbytes != self.values.nbytes:
            raise EdlError(ErrorCode.SHAPE_MISMATCH, f"{header.nbytes} bytes of values")
        self._proposed[header.worker_id] = np.frombuffer(self.payloads[-1], np.float32).copy()
        yield pb.ProposeReply().SerializeToString()

    def prepare(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.PrepareHeader.FromString(next(frames))
        part = header.gradient
        dtype = np.dtype(HALVES.get(part.precision, np.float32))
        count = sum(one.count for one in part.rows)
        sizes = part.nbytes, part.state_nbytes, 8 * count, count * self.dim * dtype.itemsize
        self._receive(header, call, frames, *sizes)
        if part.nbytes != self.trainable * dtype.itemsize:
            raise EdlError(ErrorCode.SHAPE_MISMATCH, f"{part.nbytes} bytes of a gradient")
        self._catch_up(header.log_index)
        gradient, state, ids, rows = _cut(self.payloads[-1], sizes)
        numbers = [np.frombuffer(each, dtype).astype(np.float32) for each in (gradient, rows)]
        is_finite = self.finds_finite and all(np.isfinite(each).all() for each in numbers)
        if is_finite:
            by_id = zip(np.frombuffer(ids, np.int64), numbers[1].reshape(-1, self.dim), strict=True)
            self._prepared[header.worker_id] = _Prepared(
                (header.lease.token, header.minibatch),
                numbers[0],
                np.frombuffer(state, np.float32),
                {int(one): row for one, row in by_id},
            )
        yield pb.PrepareReply(finite=is_finite).SerializeToString()

    def read(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.ReadHeader.FromString(next(frames))
        self._receive(header, call, frames, 8 * sum(one.count for one in header.rows))
        version, values, rows = self._version(header.frozen, header.log_index)
        ids = np.frombuffer(self.payloads[-1], np.int64)
        found = np.array([self._row(rows, int(one)) for one in ids], np.float32).reshape(-1)
        trainable, state = values[: self.trainable], values[self.trainable :]
        if not (self.initialized or header.frozen):
            found = found[:0]
        if header.only_rows or not (self.initialized or header.frozen):
            trainable = state = values[:0]
        precision, dtype = header.precision, np.dtype(HALVES.get(header.precision, np.float32))
        with np.errstate(over="ignore"):
            if not all(np.isfinite(each.astype(dtype)).all() for each in (trainable, found)):
                precision, dtype = job_pb2.FLOAT32, np.dtype(np.float32)
        sent = trainable.astype(dtype).tobytes() + state.tobytes()
        sent_rows = found.astype(dtype).tobytes()
        yield pb.ReadReply(
            version=version, nbytes=len(sent), rows_nbytes=len(sent_rows), precision=precision
        ).SerializeToString()
        yield from (sent, sent_rows)

    def put_rows(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.PutRowsHeader.FromString(next(frames))
        sizes = 8 * header.rows.count, 4 * self.dim * header.rows.count
        self._receive(header, call, frames, *sizes)
        self._catch_up(0)
        accepted = not self.initialized
        if accepted:
            ids, rows = _cut(self.payloads[-1], sizes)
            numbers = np.frombuffer(rows, np.float32).reshape(-1, self.dim)
            for one, row in zip(np.frombuffer(ids, np.int64), numbers, strict=True):
                self.rows[int(one)] = row
        yield pb.PutRowsReply(accepted=accepted).SerializeToString()

    def scan_rows(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        header = pb.ScanRowsHeader.FromString(next(frames))
        self._receive(header, call, frames)
        _, _, rows = self._version(header.frozen, header.log_index)
        ids = sorted(rows)[header.cursor : header.cursor + max(header.most, 1)]
        after = header.cursor + len(ids)
        more = after < len(rows)
        yield pb.ScanRowsReply(
            count=len(ids), cursor=after if more else 0, more=more
        ).SerializeToString()
        yield np.array(ids, np.int64).tobytes()
        yield b"".join(rows[one].tobytes() for one in ids)

    # --- state -----------------------------------------------------------------------------

    def _catch_up(self, index: int) -> None:
        """Wait until the log has ``count`` commands, and apply all that it has."""
        with self.log.changed:
            self.log.changed.wait_for(lambda: self.log.index >= index, WAIT_S)
            while self._applied < self.log.index:
                self._apply(self.log.commands[self._applied])
                self._applied += 1

    def _apply(self, command: _Command) -> None:
        if command.initializes:
            self.values, self.initialized = self._proposed.pop(command.worker), True
        if command.push is not None:
            part = self._prepared.pop(command.worker)
            assert part.key == command.push, "the push that was prepared"
            self.values[: self.trainable] -= self.rate * part.gradient
            if part.state.size:
                self.values[self.trainable :] += part.state
            for one, gradient in part.rows.items():
                self.rows[one] = self._row(self.rows, one) - self.rate * gradient
        self.version = command.version
        if command.frozen:
            self._frozen[command.frozen] = self.version, self.values.copy(), dict(self.rows)

    def _row(self, rows: Mapping[int, Array], one: int) -> Array:
        return rows.get(one, np.zeros(self.dim, np.float32))

    def _version(self, frozen: str, index: int) -> tuple[int, Array, dict[int, Array]]:
        self._catch_up(index)
        if not frozen:
            return self.version, self.values, self.rows
        if frozen not in self._frozen:
            raise EdlError(ErrorCode.VERSION_NOT_FOUND, f"no frozen version {frozen}")
        return self._frozen[frozen]


class FakeParameterServers:
    """The coordinator and the servers of one job.

    Args:
        parts: how many trainable numbers, and how many of state, each server has.
        dim: numbers of a row of the only table.
        direct: whether callers may leave gRPC.
    """

    def __init__(self, parts: Sequence[tuple[int, int]], dim: int, *, direct: bool = True) -> None:
        self._parts, self._dim = parts, dim
        self.log = FakeLog()
        self.master = FakeCoordinator(self.log)
        self.servers = self.start_servers(direct=direct)

    def start_servers(self, *, direct: bool = True) -> list[FakeShard]:
        """Further servers of the same job."""
        return [FakeShard(self.log, *part, self._dim, direct=direct) for part in self._parts]

    def grant(self, token: int) -> None:
        """Let pushes count under a lease, of whose task no minibatch is in the model."""
        self.log.counts[token] = 0

    def close(self) -> None:
        for role in (self.master, *self.servers):
            role.close()


def _cut(payload: bytes, sizes: Sequence[int]) -> list[bytes]:
    ends = np.cumsum(sizes).tolist()
    return [payload[end - size : end] for end, size in zip(ends, sizes, strict=True)]
