"""A parameter server and a master that does not always hear it."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest

from edl_master.adapters.checkpoint_files import PLANE, read_checkpoint
from edl_master.adapters.checkpoints import part_path
from edl_master.control.job_controller import SNAPSHOTS
from edl_master.core.identifiers import TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.parameters.commands import (
    CommitInitialValues,
    CommitPush,
    KeepBestValues,
    RestoreBestValues,
    TakeSnapshot,
)
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameter_server.app import App
from edl_master.parameters.coordinator import Coordinator
from edl_master.server_group.group import ParameterServerGroup
from edl_master.server_group.remote_stores import RemoteStores
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.servers import ServersServicer
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, raw_calls
from edl_proto.transport.parameters import COORDINATOR, ShardStub
from edl_proto.v1 import job_pb2, parameters_pb2, servers_pb2, servers_pb2_grpc, task_pb2

LONG_S = 200.0
MODEL = Layout((Variable("w", (4,), "float32", True),))
WORKER: dict[str, Any] = {
    "worker_id": 1,
    "incarnation": "inc",
    "layout_fingerprint": MODEL.fingerprint,
}
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


class HardOfHearing(ServersServicer):
    """A master that misses the first reports about what was kept, and breaks off transfers."""

    misses = 0
    breaks = 0

    def WritePart(
        self, request_iterator: Iterator[servers_pb2.FilePiece], context: grpc.ServicerContext
    ) -> servers_pb2.WritePartReply:
        if self.breaks:
            self.breaks -= 1
            next(request_iterator)
            context.abort(grpc.StatusCode.UNAVAILABLE, "what?")
        return super().WritePart(request_iterator, context)

    def Report(
        self, request: servers_pb2.ServerReport, context: grpc.ServicerContext
    ) -> servers_pb2.ServerReportReply:
        if request.snapshot_written and self.misses:
            self.misses -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "what?")
        return super().Report(request, context)


class Master:
    """A group of one server over gRPC, the command log too, and its server in a thread."""

    def __init__(self, place: Path, scratch: Path | None = None, restore_from: str = "") -> None:
        self.group = ParameterServerGroup(
            job_pb2.JobSpec(name="j"), 1, "inc", {SNAPSHOTS: place}, restore_from
        )
        self.failed: queue.SimpleQueue[EdlError] = queue.SimpleQueue()
        self.servicer = HardOfHearing(self.group, "inc", lambda *_: None, self.failed.put)
        self.grpc = grpc.server(
            futures.ThreadPoolExecutor(8),
            interceptors=[ErrorInterceptor(lambda _: None, lambda *_: None)],
            options=channels.SERVER_OPTIONS,
        )
        servers_pb2_grpc.add_ServersServicer_to_server(self.servicer, self.grpc)
        coordinator, follow = Coordinator(RemoteStores(self.group)), self.servicer.follow
        no_reporter: Any = None
        workers = CoordinatorServicer(coordinator, no_reporter, Metrics(), "inc", follow)
        raw_calls.add_to_server(COORDINATOR, workers, self.grpc)
        port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.grpc.start()
        self.ended: list[int] = []
        self.address = f"127.0.0.1:{port}"
        app = App(self.address, 0, "inc", "127.0.0.1", scratch=scratch)
        self._thread = threading.Thread(target=lambda: self.ended.append(app.run()), daemon=True)
        self._thread.start()

    @contextmanager
    def server(self) -> Iterator[ShardStub]:
        """The server as a worker calls it."""
        (address,) = self.group.wait_for_all(LONG_S)
        with channels.connect(address) as channel:
            stub = ShardStub(channel, address)
            yield stub
            stub.close()

    def values(self, stub: ShardStub) -> npt.NDArray[np.float32]:
        """Return the values after all commands."""
        received = np.zeros(4, np.float32)
        pull = parameters_pb2.ReadHeader(**WORKER, log_index=self.group.log.index)
        stub.read(pull, lambda _: received.data, LONG_S)
        return received

    def close(self) -> None:
        self.group.close()
        self._thread.join(LONG_S)
        self.grpc.stop(None).wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Any]:
    master = Master(tmp_path)
    yield master
    master.close()


def test_a_kept_part_is_reported_until_the_master_has_acknowledged_it(
    master: Master, tmp_path: Path
) -> None:
    """Else it would wait for the part ten minutes long, without any other snapshot."""
    master.servicer.misses = 2
    master.group.log.begin(MODEL, SGD, Async())
    master.group.log.append(TakeSnapshot("label", SNAPSHOTS))
    assert master.group.wait_written("label", LONG_S) >= 0.0
    assert part_path(tmp_path, "j", "label", 0).is_dir()
    assert master.servicer.misses == 0
    master.close()
    assert master.ended == [0]
    assert master.failed.empty()


class Overheard(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Notes what goes over gRPC."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self.calls.append(details.method.rpartition("/")[2])
        return continuation(details, request)

    intercept_stream_stream = intercept_unary_unary


def test_workers_reach_a_server_directly(master: Master) -> None:
    """Values are proposed, committed by a command, and read, all over one socket."""
    master.group.log.begin(MODEL, SGD, Async())
    deadline = time.monotonic() + LONG_S
    while not (addresses := master.group.addresses()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    overheard = Overheard()
    values = np.arange(4, dtype=np.float32)
    with channels.connect(addresses[0]) as channel:
        stub = ShardStub(grpc.intercept_channel(channel, overheard), addresses[0])
        offer = parameters_pb2.ProposeHeader(**WORKER, nbytes=values.nbytes)
        stub.propose(offer, values.data, LONG_S)
        master.group.log.append(CommitInitialValues(WorkerId(1)))
        received = np.zeros(4, np.float32)
        pull = parameters_pb2.ReadHeader(**WORKER, log_index=master.group.log.index)
        assert stub.read(pull, lambda _: received.data, LONG_S).nbytes == values.nbytes
        np.testing.assert_array_equal(received, values)
        with pytest.raises(grpc.RpcError) as caught:
            stub.read(parameters_pb2.ReadHeader(incarnation="former"), bytearray, LONG_S)
        refused = EdlError.from_rpc(caught.value)
        assert refused is not None
        assert refused.code == ErrorCode.STALE_INCARNATION
        assert overheard.calls == ["Open"], "nothing else went over gRPC"
        stub.close()


def test_the_master_hears_how_large_tables_are(master: Master) -> None:
    table = TableSpec("users", 2, Initial(Distribution.UNIFORM, 0.0, 0.05), 1)
    master.group.log.begin(Layout(MODEL.variables, (table,)), SGD, Async())
    deadline = time.monotonic() + LONG_S
    while not (found := master.group.tables()).rows:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found.rows == {"users": 0}


def test_a_part_that_cannot_be_kept_fails_the_job(master: Master, tmp_path: Path) -> None:
    (tmp_path / ".j-label-part-0.tmp").write_bytes(b"in the way")
    master.group.log.begin(MODEL, SGD, Async())
    master.group.log.append(TakeSnapshot("label", SNAPSHOTS))
    failed = master.failed.get(timeout=LONG_S)
    assert str(tmp_path) in failed.where
    with pytest.raises(EdlError) as ended:
        master.group.wait_written("label", LONG_S)
    assert ended.value.where == failed.where, "a part that will never be written is not waited for"


# --- a server that does not see the master's files ---------------------------------------------


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_parts_and_checkpoints_travel_through_the_master(tmp_path: Path, scratch: Path) -> None:
    """They have the best values, which are not the newest ones."""
    place = tmp_path / "snapshots"
    place.mkdir()
    master = Master(place, scratch)
    master.servicer.breaks = 2
    log = master.group.log
    log.begin(MODEL, SGD, Async())
    best = np.arange(4, dtype=np.float32)
    with master.server() as stub:
        stub.propose(parameters_pb2.ProposeHeader(**WORKER, nbytes=best.nbytes), best.data, LONG_S)
        log.append(CommitInitialValues(WorkerId(1)))
        log.append(KeepBestValues())
        lease = task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1)
        gradient = np.ones(4, np.float32)
        header = parameters_pb2.GradientHeader(nbytes=gradient.nbytes)
        prepared = parameters_pb2.PrepareHeader(**WORKER, lease=lease, gradient=header)
        stub.prepare(prepared, (gradient.data,), LONG_S)
        task = TaskKey(TaskType.TRAINING, 0, 0)
        log.append(CommitPush(task, Token(1), 0, 1, Version(1)))
    log.append(TakeSnapshot("label", SNAPSHOTS))
    master.group.wait_written("label", LONG_S)
    master.close()
    assert master.ended == [0]
    assert list(scratch.iterdir()) == [], "what the master has is not kept twice"
    part = part_path(place, "j", "label", 0)
    assert read_checkpoint(part, check=True).documents[PLANE]["version"] == 1
    next_scratch = tmp_path / "next"
    next_scratch.mkdir()
    following = Master(place, next_scratch, restore_from=str(part))
    following.group.log.begin(MODEL, SGD, Async())
    with following.server() as stub:
        np.testing.assert_array_equal(following.values(stub), best - 1)
        following.group.log.append(RestoreBestValues(Version(2)))
        np.testing.assert_array_equal(following.values(stub), best)
    following.close()


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"incarnation": "former"}, ErrorCode.STALE_INCARNATION),
        ({"place": "/etc"}, ErrorCode.USAGE),
        ({"label": "../x"}, ErrorCode.USAGE),
        ({"file": "../x"}, ErrorCode.USAGE),
        ({"file": "a/b/c"}, ErrorCode.USAGE),
        ({"file": "/etc/x"}, ErrorCode.USAGE),
    ],
)
def test_the_master_writes_no_file_anywhere_else(
    master: Master, tmp_path: Path, changed: dict[str, str], code: int
) -> None:
    piece = {"incarnation": "inc", "place": str(tmp_path), "label": "label", "file": "x"}
    with channels.connect(master.address) as channel:
        stub = servers_pb2_grpc.ServersStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.WritePart(iter([servers_pb2.FilePiece(**{**piece, **changed})]), timeout=LONG_S)
    refused = EdlError.from_rpc(caught.value)
    assert refused is not None
    assert refused.code == code
    assert not list(tmp_path.glob(".j-*"))
