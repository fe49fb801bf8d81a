"""A coordinator and its shards over real gRPC, which record what they are sent."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.transport.frames import fill
from edl_proto.transport.parameters import COORDINATOR, NOTHING, SHARD, CoordinatorStub
from edl_proto.transport.raw_calls import RawService, add_to_server, listen
from edl_proto.transport.row_placement import server_of
from edl_proto.v1 import job_pb2
from edl_proto.v1 import parameters_pb2 as pb
from edl_worker.core.exchange import (
    CallerIdentity,
    ParameterReply,
    PullRequest,
    PushRequest,
    TableRows,
)
from edl_worker.core.job import WirePrecision
from edl_worker.core.model_description import (
    ModelDescription,
    TableDescription,
    VariableDescription,
)
from edl_worker.core.registration import ShardAddress
from edl_worker.core.tasks import LeaseRef, TaskKey, TaskType
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.parameter_servers import ParameterServerClient

DIM = 2
ROWS = 12
"""Of the one table; row ``i`` is ``[i, -i]`` wherever it is."""

WAIT_S = 200.0

CALLER = CallerIdentity(worker_id=1, incarnation="inc", layout_fingerprint="layout")
MODEL = ModelDescription(
    model_name="model",
    variables=(
        VariableDescription("w", (3,), "float32", trainable=True),
        VariableDescription("b", (1,), "float32", trainable=True),
        VariableDescription("mean", (2,), "float32", trainable=False),
    ),
    tables=(TableDescription("t", DIM, 0, 0.0, 0.0, 0, 1, 0),),
)
PUSH = PushRequest(
    lease=LeaseRef(TaskKey(TaskType.TRAINING, 0, 0), token=9),
    minibatch=0,
    minibatches=1,
    records=1,
    base_version=0,
    compute_s=0.0,
    wants_values=True,
    state_nbytes=8,
    rows=(TableRows(0, ROWS),),
)
BORDERS = (0, 8, 24)
"""The first server has two elements of ``w``; the other the third, ``b`` and ``mean``."""

Array = npt.NDArray[Any]


def as_bytes(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array)).cast("B")


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


# --- over connections --------------------------------------------------------------------------


class RoleDouble:
    """One role of the parameter plane: notes what it is asked."""

    service: RawService

    def __init__(self, *, direct: bool = True) -> None:
        self.heard: list[Any] = []
        self.ways: set[str] = set()
        self.payloads: list[bytes] = []
        self.error: EdlError | None = None
        self.version = 1
        self.together: threading.Barrier | None = None
        errors = ErrorInterceptor(on_internal_error=lambda name, error: print(name, repr(error)))
        self.server = grpc.server(
            futures.ThreadPoolExecutor(8),
            options=channels.SERVER_OPTIONS,
            interceptors=[errors],
        )
        self.direct = listen(self.service, self, "127.0.0.1", errors.translate)
        add_to_server(self.service, self, self.server, self.direct if direct else None)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def close(self) -> None:
        self.server.stop(None).wait()
        self.direct.close()

    def _hear(self, header: Any, first: bytes, frames: Iterator[bytes], *sizes: int) -> Any:
        header.ParseFromString(first)
        self.heard.append(header)
        payload = bytearray(sum(sizes))
        fill(frames, memoryview(payload))
        self.payloads.append(bytes(payload))
        if self.together is not None:
            self.together.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return header

    def _note(self, call: Any) -> None:
        self.ways.add("over gRPC" if isinstance(call, grpc.ServicerContext) else "direct")


class CoordinatorDouble(RoleDouble):
    """The master: counts every push."""

    service = COORDINATOR

    def __init__(self) -> None:
        super().__init__()
        self.log_index = 0
        self.permit_granted = True

    def commit_initial_values(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._hear(pb.CommitInitialValuesRequest(), next(frames), frames)
        yield pb.CommitInitialValuesReply(
            accepted=True, log_index=self.log_index
        ).SerializeToString()

    def permit(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._hear(pb.PermitRequest(), next(frames), frames)
        yield pb.PermitReply(
            initialized=True,
            permit_granted=self.permit_granted,
            version=self.version,
            log_index=self.log_index,
        ).SerializeToString()

    def commit(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._hear(pb.CommitRequest(), next(frames), frames)
        yield pb.CommitReply(
            outcome=pb.APPLIED,
            version=self.version,
            permit_granted=self.permit_granted,
            log_index=self.log_index,
        ).SerializeToString()


class ShardDouble(RoleDouble):
    """A parameter server with a part of the values."""

    service = SHARD

    def __init__(self, values: Array, number: int, *, direct: bool = True) -> None:
        super().__init__(direct=direct)
        self.values = values
        self.number = number
        self.finite = True
        self.whole = False
        """It has a value that has no place in 16 bits."""

    def _rows(self, ids: bytes, dtype: Any = np.float32) -> bytes:
        flat = np.frombuffer(ids, np.int64).astype(dtype)
        return np.stack([flat, -flat], axis=1).tobytes()

    def propose(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._note(call)
        first = next(frames)
        nbytes = pb.ProposeHeader.FromString(first).nbytes
        self._hear(pb.ProposeHeader(), first, frames, nbytes)
        yield pb.ProposeReply().SerializeToString()

    def read(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._note(call)
        first = next(frames)
        ids = 8 * sum(one.count for one in pb.ReadHeader.FromString(first).rows)
        header = self._hear(pb.ReadHeader(), first, frames, ids)
        half = header.precision == job_pb2.FLOAT16 and not self.whole
        dtype = np.float16 if half else np.float32
        values = b""
        if not header.only_rows:  # two trainable ones, then state
            values = self.values[:2].astype(dtype).tobytes() + self.values[2:].tobytes()
        rows = self._rows(self.payloads[-1], dtype) if ids else b""
        yield pb.ReadReply(
            version=self.version,
            nbytes=len(values),
            rows_nbytes=len(rows),
            precision=job_pb2.FLOAT16 if half else job_pb2.FLOAT32,
        ).SerializeToString()
        yield from (values, rows)

    def prepare(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._note(call)
        first = next(frames)
        gradient = pb.PrepareHeader.FromString(first).gradient
        rows = sum(one.count for one in gradient.rows)
        row = 8 + (2 if gradient.precision else 4) * DIM
        sizes = gradient.nbytes, gradient.state_nbytes, rows * row
        self._hear(pb.PrepareHeader(), first, frames, *sizes)
        yield pb.PrepareReply(finite=self.finite).SerializeToString()

    def put_rows(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        self._note(call)
        first = next(frames)
        count = pb.PutRowsHeader.FromString(first).rows.count
        self._hear(pb.PutRowsHeader(), first, frames, count * (8 + 4 * DIM))
        yield pb.PutRowsReply(accepted=True).SerializeToString()

    def scan_rows(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        """Two ids at a time of those that are here."""
        self._note(call)
        header = self._hear(pb.ScanRowsHeader(), next(frames), frames)
        every = np.arange(ROWS)
        mine = every[server_of(every, 2) == self.number]
        found = mine[header.cursor : header.cursor + 2]
        after = header.cursor + found.size
        yield pb.ScanRowsReply(
            count=found.size, cursor=after, more=after < mine.size
        ).SerializeToString()
        yield found.tobytes()
        yield self._rows(found.tobytes())


class Job:
    """A master and two parameter servers, and the worker's client of them."""

    def __init__(self, *, direct: bool) -> None:
        self.master = CoordinatorDouble()
        self.parts = self.servers(direct=direct)
        self.log_index = LogIndex()
        self.channel = channels.connect(self.master.address)
        self.seen = self.view([part.address for part in self.parts])

    def servers(self, *, direct: bool = True) -> list[ShardDouble]:
        return [
            ShardDouble(floats(0, 1), 0, direct=direct),
            ShardDouble(floats(2, 3, 4, 5), 1, direct=direct),
        ]

    def view(self, addresses: Sequence[str]) -> ParameterServerClient:
        ranges = itertools.pairwise(BORDERS)
        servers = [
            ShardAddress(address, start, stop)
            for address, (start, stop) in zip(addresses, ranges, strict=True)
        ]
        return ParameterServerClient(CoordinatorStub(self.channel), servers, MODEL, self.log_index)

    def close(self) -> None:
        self.seen.close()
        self.channel.close()
        for role in (self.master, *self.parts):
            role.close()


def pushed(job: Job, seen: ParameterServerClient | None = None, timeout_s: float = WAIT_S) -> Any:
    """Push gradients 10.. of 4 elements, state 20.. of 2 and rows of all ids; what came back."""
    every = np.arange(ROWS)
    after = np.array([7, 3, 5], np.int64)
    values, rows = bytearray(BORDERS[-1]), bytearray(4 * DIM * after.size)
    request = replace(PUSH, gradient_nbytes=16, next_rows=(TableRows(0, after.size),))
    payloads = (
        as_bytes(floats(10, 11, 12)),
        as_bytes(floats(13)),
        as_bytes(floats(20, 21)),
        as_bytes(every),
        as_bytes(after),
        as_bytes(np.stack([every, every], axis=1).astype(np.float32)),
    )
    buffers = (lambda n: memoryview(values)[:n]), (lambda n: rows)
    reply = (seen or job.seen).push(CALLER, request, payloads, buffers, 0.0, timeout_s)
    return reply, np.frombuffer(values, np.float32), np.frombuffer(rows, np.float32)


def pushed_half(job: Job) -> Any:
    """As ``pushed``, with gradients of 16 bits, and wishing for such an answer."""
    every = np.arange(ROWS)
    after = np.array([7, 3, 5], np.int64)
    values, rows = bytearray(BORDERS[-1]), bytearray(4 * DIM * after.size)
    request = replace(
        PUSH,
        gradient_nbytes=8,
        next_rows=(TableRows(0, after.size),),
        precision=WirePrecision.FLOAT16,
        reply_precision=WirePrecision.FLOAT16,
    )
    payloads = (
        as_bytes(np.array([10, 11, 12, 13], np.float16)),
        as_bytes(floats(20, 21)),
        as_bytes(every),
        as_bytes(after),
        as_bytes(np.stack([every, every], axis=1).astype(np.float16)),
    )
    buffers = (lambda n: memoryview(values)[:n]), (lambda n: memoryview(rows)[:n])
    reply = job.seen.push(CALLER, request, payloads, buffers, 0.0, WAIT_S)
    return reply, bytes(values[: reply.nbytes]), bytes(rows[: reply.rows_nbytes])


def pulled(job: Job, **fields: Any) -> tuple[ParameterReply, Array]:
    values = bytearray(BORDERS[-1])
    buffers = (lambda n: memoryview(values)[:n]), bytearray
    reply = job.seen.pull(CALLER, PullRequest(**fields), NOTHING, buffers, 0.0, WAIT_S)
    return reply, np.frombuffer(values, np.float32)
