"""Rows of embedding tables over real gRPC: exactly once, at one moment, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures

import grpc
import numpy as np
import pytest

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import TaskKey, TaskType, Token, WorkerId
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.plane import build_local
from edl_master.server import _translate
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.push_report import PushReporter
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, parameters, raw_calls
from edl_proto.v1 import parameters_pb2, task_pb2

TABLES = (
    TableSpec("one", 2, Initial(Distribution.CONSTANT, 1.0), 3),
    TableSpec("two", 3, Initial(Distribution.CONSTANT, 2.0), 4),
)
SGD = '{"class_name": "SGD", "config": {"learning_rate": 1.0}}'
TASK = TaskKey(TaskType.TRAINING, 0, 0)


class Job:
    """A job that is told of pushes."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def handle(self, event: object) -> None:
        self.told.append(event)


class Server:
    """The parameter service of a plane with two tables, and a client of it."""

    def __init__(self) -> None:
        buffers = BufferPool()
        local = build_local(buffers, lambda *_: Async())
        self.plane = local.coordinator
        weights = (Variable("w", (4,), "float32", True),)
        self.fingerprint, _ = local.model.describe(weights, SGD, "mean", lambda: TABLES)
        self.job = Job()
        metrics = Metrics()
        servicer = ParametersServicer(
            local.plane,
            local.shard,
            PayloadTransfer(buffers, metrics),
            PushReporter(self.job, metrics),
            "1",
        )
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4),
            interceptors=[ErrorInterceptor(_translate, lambda method, error: None)],
            options=channels.SERVER_OPTIONS,
        )
        raw_calls.add_to_server(parameters.PARAMETERS, servicer, self._server)
        self.channel = channels.connect(
            f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        )
        self._server.start()
        self.stub = parameters.ParametersStub(self.channel)
        local.plane.initialize(WorkerId(0), memoryview(bytes(16)))
        self.plane.grant(TASK, Token(1))

    def close(self) -> None:
        self.channel.close()
        self._server.stop(0)

    @property
    def who(self) -> dict[str, object]:
        return {"incarnation": "1", "layout_fingerprint": self.fingerprint}

    def push(
        self, minibatch: int, ids: list[int], next_ids: list[int]
    ) -> tuple[parameters_pb2.PushReply, np.ndarray[tuple[int], np.dtype[np.float32]]]:
        header = parameters_pb2.PushHeader(
            **self.who,
            claim=parameters_pb2.PushClaim(
                lease=task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1),
                minibatch=minibatch,
                records=1,
            ),
            gradient=parameters_pb2.GradientHeader(
                nbytes=16, rows=[parameters_pb2.TableRows(table=1, count=len(ids))]
            ),
            next=parameters_pb2.NextStep(
                rows=[parameters_pb2.TableRows(table=1, count=len(next_ids))]
            ),
        )
        payloads = (
            np.ones(4, np.float32),
            np.array(ids, np.int64),
            np.array(next_ids, np.int64),
            np.ones((len(ids), 3), np.float32),
        )
        rows = bytearray(12 * len(next_ids))
        reply = self.stub.push(
            header,
            tuple(memoryview(p.reshape(-1).view(np.uint8)) for p in payloads),
            bytearray,
            30,
            lambda n: rows,
        )
        return reply, np.frombuffer(rows, np.float32)

    def send_and_return_error(self, method: str, *frames: bytes) -> EdlError:
        call = self.channel.stream_stream(f"/edl.v1.Parameters/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter(frames), timeout=200))
        error = EdlError.from_rpc(caught.value)
        assert error is not None, caught.value
        return error


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_a_push_changes_weights_and_rows_and_brings_the_next_rows(server: Server) -> None:
    reply, rows = server.push(0, [5, -6], [5, 7])
    assert reply.outcome == parameters_pb2.APPLIED
    assert rows.tolist() == [1, 1, 1, 2, 2, 2]
    again, rows = server.push(0, [5, -6], [5, -6])  # the answer was lost
    assert again.outcome == parameters_pb2.ALREADY_APPLIED
    assert rows.tolist() == [1] * 6
    assert len(server.job.told) == 1


def test_a_pull_brings_rows_of_several_tables_with_the_values(server: Server) -> None:
    server.push(0, [5], [])
    ids = np.array([1, 2, 5], np.int64)
    got = bytearray(2 * 8 + 12)
    reply = server.stub.pull(
        parameters_pb2.PullHeader(
            **server.who,
            rows=[
                parameters_pb2.TableRows(table=0, count=2),
                parameters_pb2.TableRows(table=1, count=1),
            ],
        ),
        bytearray,
        30,
        memoryview(ids),
        lambda n: got,
    )
    assert (reply.version, reply.nbytes, reply.rows_nbytes) == (1, 16, 28)
    assert np.frombuffer(got, np.float32).tolist() == [1, 1, 1, 1, 1, 1, 1]


def test_rows_of_a_frozen_version_are_read_and_scanned(server: Server) -> None:
    server.push(0, [5, 6], [])
    server.plane.freeze("then")
    server.push(1, [5, 8], [])
    header = parameters_pb2.ScanRowsHeader(**server.who, frozen="then", table=1, most=1)
    found = {}
    while True:
        reply, ids, rows = server.stub.scan_rows(header, 3, 30)
        assert reply.count <= 1
        values = np.frombuffer(rows, np.float32).reshape(-1, 3).tolist()
        found |= dict(zip(np.frombuffer(ids, np.int64).tolist(), values, strict=True))
        if not reply.more:
            break
        header.cursor = reply.cursor
    assert found == {5: [1, 1, 1], 6: [1, 1, 1]}
    header.frozen = "never"
    assert (
        server.send_and_return_error("ScanRows", header.SerializeToString()).code
        == ErrorCode.VERSION_NOT_FOUND
    )


@pytest.mark.parametrize(
    "rows",
    [
        [parameters_pb2.TableRows(table=7, count=1)],
        [parameters_pb2.TableRows(table=0, count=1)] * 2,
        [parameters_pb2.TableRows(table=0, count=1 << 60)],
        [parameters_pb2.TableRows(table=0, count=(1 << 24) + 1)],
        [parameters_pb2.TableRows(table=n, count=9_000_000) for n in (0, 1)],
    ],
    ids=["no such table", "twice", "hostile", "too many", "too many together"],
)
def test_senseless_requests_are_refused_before_memory_is_taken(
    server: Server, rows: list[parameters_pb2.TableRows]
) -> None:
    for method, header in {
        "Pull": parameters_pb2.PullHeader(**server.who, rows=rows),
        "Push": parameters_pb2.PushHeader(
            **server.who,
            gradient=parameters_pb2.GradientHeader(nbytes=16, rows=rows),
        ),
        "PutRows": parameters_pb2.PutRowsHeader(**server.who, rows=rows[-1]),
    }.items():
        if method == "PutRows" and len(rows) > 1:
            continue
        error = server.send_and_return_error(method, header.SerializeToString())
        assert error.code == ErrorCode.SHAPE_MISMATCH, method


def test_ids_that_end_early_change_nothing(server: Server) -> None:
    header = parameters_pb2.PullHeader(
        **server.who,
        rows=[parameters_pb2.TableRows(table=0, count=3)],
    )
    error = server.send_and_return_error("Pull", header.SerializeToString(), bytes(16))
    assert "16 of 24" in error.what
    with pytest.raises(grpc.RpcError, match="twice"):
        server.push(0, [3, 3], [])
    assert server.push(0, [3], [3])[1].tolist() == [1, 1, 1]
