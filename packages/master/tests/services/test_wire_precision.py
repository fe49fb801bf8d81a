"""Numbers of 16 bits over real connections: what comes in and goes out, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import TaskKey, TaskType, Token, WorkerId
from edl_master.core.parameters.layout import Array, Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.plane import build_local
from edl_master.server import _translate
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.push_report import PushReporter
from edl_master.servicers.wire_layout import _PIECE_BYTES
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, parameters, raw_calls
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2

LONG_S = 200.0
SIZE = 2 * _PIECE_BYTES + 3
"""Elements of the large variable: many pieces, and some more."""

VARIABLES = (
    Variable("a", (SIZE,), "float32", True),
    Variable("b", (3,), "float64", True),
    Variable("c", (2,), "float32", True),
    Variable("mean", (2,), "float32", False),
)
TABLE = TableSpec("rows", 2, Initial(Distribution.CONSTANT, 1.0), 3)
SGD = '{"class_name": "SGD", "config": {"learning_rate": 1.0}}'
TASK = TaskKey(TaskType.TRAINING, 0, 0)
LEASE = task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1)

HALVES = (job_pb2.FLOAT16, job_pb2.BFLOAT16)


def to_half(values: Array, precision: int) -> Array:
    """Convert numbers that 16 bits of either kind have exactly."""
    if precision == job_pb2.FLOAT16:
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_half(bits: Array, precision: int) -> Array:
    if precision == job_pb2.FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Server:
    """A plane behind real connections, and a client of it."""

    def __init__(self, *, direct: bool) -> None:
        buffers = BufferPool()
        self.metrics = Metrics()
        local = build_local(buffers, lambda *_: Async())
        self.plane = local.coordinator
        self.fingerprint, _ = local.model.describe(VARIABLES, SGD, "mean", lambda: (TABLE,))
        self.told: list[object] = []
        servicer = ParametersServicer(
            local.plane,
            local.shard,
            PayloadTransfer(buffers, self.metrics),
            PushReporter(self, self.metrics),
            "1",
        )
        errors = ErrorInterceptor(_translate, lambda method, error: None)
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4), interceptors=[errors], options=channels.SERVER_OPTIONS
        )
        self._listener = raw_calls.listen(
            parameters.PARAMETERS, servicer, "127.0.0.1", errors.translate
        )
        raw_calls.add_to_server(
            parameters.PARAMETERS, servicer, self._server, self._listener if direct else None
        )
        address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        self._channel = channels.connect(address)
        self.stub = parameters.ParametersStub(self._channel, address)
        self.who: dict[str, Any] = {"incarnation": "1", "layout_fingerprint": self.fingerprint}
        self.a = (np.arange(SIZE) % 200 - 100).astype(np.float32)
        self.b = np.array([1 / 3, 2, 3])
        self.c = np.array([5, 6], np.float32)
        self.mean = np.array([1 / 7, 100_000.5], np.float32)
        values = b"".join(part.tobytes() for part in (self.a, self.b, self.c, self.mean))
        local.plane.initialize(WorkerId(0), memoryview(values))
        self.plane.grant(TASK, Token(1))

    def handle(self, event: object) -> None:
        self.told.append(event)

    def close(self) -> None:
        self.stub.close()
        self._channel.close()
        self._listener.close()
        self._server.stop(0).wait()

    def pull(self, precision: int, ids: tuple[int, ...] = ()) -> tuple[Any, bytes, Array]:
        """The reply, the values as they came, and the rows as they came."""
        values, rows = bytearray(), bytearray()

        def grow(memory: bytearray, nbytes: int) -> bytearray:
            memory.extend(bytes(nbytes))
            return memory

        header = parameters_pb2.PullHeader(
            **self.who,
            precision=precision,
            rows=[parameters_pb2.TableRows(table=0, count=len(ids))],
        )
        reply = self.stub.pull(
            header,
            lambda n: grow(values, n),
            LONG_S,
            memoryview(np.array(ids, np.int64)),
            lambda n: grow(rows, n),
        )
        return reply, bytes(values), np.frombuffer(rows, np.uint8)

    def push(
        self, precision: int, gradient: list[Array], rows: Array, **claim: Any
    ) -> parameters_pb2.PushReply:
        ids = np.array([7, -7], np.int64)
        state = np.array([0.25, 0.5], np.float32)
        header = parameters_pb2.PushHeader(
            **self.who,
            claim=parameters_pb2.PushClaim(lease=LEASE, records=1, **claim),
            gradient=parameters_pb2.GradientHeader(
                nbytes=sum(part.nbytes for part in gradient),
                state_nbytes=state.nbytes,
                precision=precision,
                rows=[parameters_pb2.TableRows(table=0, count=ids.size)],
            ),
        )
        sent = tuple(memoryview(part).cast("B") for part in (*gradient, state, ids, rows))
        return self.stub.push(header, sent, bytearray, LONG_S)


@pytest.fixture(params=["direct", "over gRPC"])
def server(request: Any) -> Iterator[Server]:
    server = Server(direct=request.param == "direct")
    yield server
    server.close()


def count_bytes(server: Server, direction: str) -> float:
    return float(server.metrics.parameter_bytes.labels(direction)._value.get())


@pytest.mark.parametrize("precision", HALVES)
def test_values_and_rows_are_pulled_with_16_bits(server: Server, precision: int) -> None:
    reply, values, rows = server.pull(precision, (3, 4))
    assert reply.precision == precision
    assert reply.nbytes == len(values) == 2 * SIZE + 24 + 4 + 8
    at = 2 * SIZE
    found = from_half(np.frombuffer(values[:at], np.uint16), precision)
    np.testing.assert_array_equal(found, server.a)
    np.testing.assert_array_equal(np.frombuffer(values[at : at + 24], np.float64), server.b)
    at += 24
    found = from_half(np.frombuffer(values[at : at + 4], np.uint16), precision)
    np.testing.assert_array_equal(found, server.c)
    np.testing.assert_array_equal(np.frombuffer(values[at + 4 :], np.float32), server.mean)
    assert reply.rows_nbytes == rows.nbytes == 8
    np.testing.assert_array_equal(from_half(rows.view(np.uint16), precision), np.ones(4))
    assert count_bytes(server, "sent") == reply.nbytes + reply.rows_nbytes, "what really travelled"


@pytest.mark.parametrize("precision", HALVES)
def test_gradients_of_16_bits_are_applied_in_32(server: Server, precision: int) -> None:
    """Steps that 16 bits would not see add up where the values are kept."""
    small = np.full(SIZE, 2.0**-12, np.float32)
    b, c = np.array([1.0, 1e-9, 0.0]), np.array([-1, 2], np.float32)
    rows = np.array([1, 2, 3, 2.0**-12], np.float32)
    gradient = [to_half(small, precision), b, to_half(c, precision)]
    for minibatch in range(2):
        reply = server.push(precision, gradient, to_half(rows, precision), minibatch=minibatch)
        assert reply.outcome == parameters_pb2.APPLIED
    sent = sum(part.nbytes for part in gradient) + 8 + 16 + rows.size * 2
    assert count_bytes(server, "received") == 2 * sent
    _, values, found_rows = server.pull(job_pb2.FLOAT32, (7, -7))
    a = np.frombuffer(values[: 4 * SIZE], np.float32)
    np.testing.assert_array_equal(a, server.a - np.float32(2.0**-11))
    at = 4 * SIZE
    np.testing.assert_array_equal(np.frombuffer(values[at : at + 24], np.float64), server.b - b - b)
    np.testing.assert_array_equal(
        np.frombuffer(values[at + 24 : at + 32], np.float32), server.c - 2 * c
    )
    state = np.frombuffer(values[at + 32 :], np.float32)
    np.testing.assert_array_equal(state, server.mean + np.array([0.5, 1], np.float32))
    np.testing.assert_array_equal(found_rows.view(np.float32), 1 - 2 * rows)


def test_a_value_beyond_float16_makes_the_answer_whole(server: Server) -> None:
    """It must not become infinite on the way."""
    gradient = [np.zeros(SIZE, np.float32), np.zeros(3), np.array([0, -70_000], np.float32)]
    server.push(job_pb2.FLOAT32, gradient, np.zeros(4, np.float32))
    reply, values, _ = server.pull(job_pb2.FLOAT16)
    assert reply.precision == job_pb2.FLOAT32
    assert reply.nbytes == len(values) == 4 * SIZE + 24 + 8 + 8
    at = 4 * SIZE + 24
    np.testing.assert_array_equal(np.frombuffer(values[at : at + 8], np.float32), [5, 70_006])
    reply, _, _ = server.pull(job_pb2.BFLOAT16)
    assert reply.precision == job_pb2.BFLOAT16, "which has the exponents of float32"


def test_a_row_beyond_float16_makes_the_answer_whole(server: Server) -> None:
    gradient = [np.zeros(SIZE, np.float32), np.zeros(3), np.zeros(2, np.float32)]
    server.push(job_pb2.FLOAT32, gradient, np.array([0, 0, 0, 1e6], np.float32))
    reply, _, rows = server.pull(job_pb2.FLOAT16, (7, -7))
    assert reply.precision == job_pb2.FLOAT32
    np.testing.assert_array_equal(rows.view(np.float32), [1, 1, 1, 1 - 1e6])


def test_an_infinite_gradient_of_16_bits_is_reported_like_any_other(server: Server) -> None:
    gradient = [np.zeros(SIZE, np.uint16), np.zeros(3), np.array([0, 0x7C00], np.uint16)]
    reply = server.push(job_pb2.FLOAT16, gradient, np.zeros(4, np.uint16))
    assert reply.outcome == parameters_pb2.INVALID


def push_and_return_error(
    server: Server, precision: int, gradient: list[Array], rows: Array
) -> EdlError:
    with pytest.raises(grpc.RpcError) as caught:
        server.push(precision, gradient, rows)
    error = EdlError.from_rpc(caught.value)
    assert error is not None, caught.value
    return error


def test_sizes_are_those_of_the_precision_that_is_named(server: Server) -> None:
    half = [np.zeros(SIZE, np.uint16), np.zeros(3), np.zeros(2, np.uint16)]
    whole = [np.zeros(SIZE, np.float32), np.zeros(3), np.zeros(2, np.float32)]
    for precision, gradient, rows in (
        (job_pb2.FLOAT32, half, np.zeros(4, np.float32)),
        (job_pb2.FLOAT16, whole, np.zeros(4, np.uint16)),
    ):
        error = push_and_return_error(server, precision, gradient, rows)
        assert error.code == ErrorCode.SHAPE_MISMATCH
        assert "gradient" in error.what


def test_an_unknown_precision_is_refused(server: Server) -> None:
    half = [np.zeros(SIZE, np.uint16), np.zeros(3), np.zeros(2, np.uint16)]
    assert push_and_return_error(server, 9, half, np.zeros(4, np.uint16)).code == ErrorCode.USAGE
    with pytest.raises(grpc.RpcError):
        server.pull(9)


def test_a_frame_that_ends_within_a_number_is_refused() -> None:
    server = Server(direct=False)
    header = parameters_pb2.PushHeader(
        **server.who,
        claim=parameters_pb2.PushClaim(lease=LEASE, records=1),
        gradient=parameters_pb2.GradientHeader(nbytes=2 * SIZE + 24 + 4, precision=job_pb2.FLOAT16),
    )
    call = server._channel.stream_stream("/edl.v1.Parameters/Push")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([header.SerializeToString(), b"abc"]), timeout=LONG_S))
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert "within a number" in error.what
    server.close()
