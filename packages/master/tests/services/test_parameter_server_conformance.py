"""The real coordinator and parameter servers keep the rules that the fake ones keep."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from edl_master import codec
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameter_server.app import App
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.stores import Model
from edl_master.server import Server, Services
from edl_master.server_group.group import ParameterServerGroup
from edl_master.server_group.remote_stores import RemoteStores
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.push_report import PushReporter
from edl_master.servicers.servers import ServersServicer
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport import channels
from edl_proto.transport.parameters import COORDINATOR, CoordinatorStub, ShardStub
from edl_proto.v1 import job_pb2, job_pb2_grpc, task_pb2, task_pb2_grpc
from edl_testing.parameter_server_conformance import ParameterServerConformance, ServedParameters

LONG_S = 200.0
INCARNATION = "inc"
VARIABLES = Variable("w", (5,), "float32", True), Variable("mean", (3,), "float32", False)
TABLE = TableSpec("t", 2, Initial(Distribution.CONSTANT), seed=1)
MODEL = Layout(VARIABLES, (TABLE,))
SGD: dict[str, Any] = {"class_name": "SGD", "config": {"learning_rate": 1.0}}


def start_server(address: str, number: int) -> threading.Thread:
    app = App(address, number, INCARNATION, "127.0.0.1")
    thread = threading.Thread(target=app.run, daemon=True)
    thread.start()
    return thread


class TestParameterServers(ParameterServerConformance):
    @pytest.fixture
    def served(self, tmp_path: Path) -> Iterator[ServedParameters]:
        """A coordinator with a server of its own, and two parameter servers that follow its log."""
        failed: list[EdlError] = []
        group = ParameterServerGroup(job_pb2.JobSpec(name="j"), 2, INCARNATION, {}, "")
        stores = RemoteStores(group)
        coordinator = Coordinator(stores)
        metrics = Metrics()
        no_job: Any = SimpleNamespace(handle=lambda event: None)
        tasks: Any = task_pb2_grpc.TasksServicer()
        status: Any = job_pb2_grpc.JobServicer()
        reporter = PushReporter(no_job, metrics)
        servers = ServersServicer(group, INCARNATION, lambda *_: None, failed.append)
        servicer = CoordinatorServicer(coordinator, reporter, metrics, INCARNATION, servers.follow)
        services = Services(tasks, status, (COORDINATOR, servicer), servers)
        with ExitStack() as opened:
            server = Server(services, "127.0.0.1", 0, parameter_servers=2)
            opened.callback(server.close, 0.0)
            address = f"127.0.0.1:{server.port}"
            threads = [start_server(address, number) for number in range(2)]
            opened.callback(lambda: [thread.join(LONG_S) for thread in threads])
            opened.callback(group.close)
            optimizer = parse_optimizer(SGD)
            model = Model(MODEL, optimizer, json.dumps(SGD), Async())
            stores.begin(model, None)
            coordinator.begin(model, None)
            lease = task_pb2.LeaseRef(
                task=task_pb2.TaskKey(type=task_pb2.TRAINING, round=1), token=7
            )
            held = codec.lease_from(lease)
            coordinator.grant(held.task, held.token)
            channel = opened.enter_context(channels.connect(address))
            stubs = []
            for shard in group.wait_for_all(LONG_S):
                stubs.append(ShardStub(opened.enter_context(channels.connect(shard)), shard))
                opened.callback(stubs[-1].close)
            served = ServedParameters(
                CoordinatorStub(channel),
                stubs,
                [numbers_of(part.layout) for part in coordinator.shard_layouts],
                TABLE.dim,
                INCARNATION,
                coordinator.fingerprint,
                lease,
                coordinator.freeze,
            )
            for number in range(len(stubs)):
                wait_until_ready(served, number)
            yield served
            assert failed == []


def wait_until_ready(served: ServedParameters, number: int) -> None:
    """Wait until a server has compiled its loops: workers repeat calls before that."""
    end = time.monotonic() + LONG_S
    while True:
        try:
            served.read(number)
            return
        except grpc.RpcError as error:
            found = EdlError.from_rpc(error)
            if found is None or found.code != ErrorCode.NOT_READY or time.monotonic() > end:
                raise


def numbers_of(layout: Layout) -> tuple[int, int]:
    """How many trainable numbers a part has, and how many of state."""
    sizes = {True: 0, False: 0}
    for variable in layout.variables:
        sizes[variable.trainable] += variable.size
    return sizes[True], sizes[False]
