"""A master with parameter servers, all real processes, for benchmarks; no job and no workers.

``python -m bench.peers.parameter_server_group SERVERS FLOATS DIM TABLES WORKERS`` serves one
variable of so many numbers and so many embedding tables, by itself with 0 servers, and has leased a
task to each worker.
It prints one line of JSON: where it is, the layout's fingerprint, the servers with their parts,
and the process numbers of all that serve.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path

import grpc

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.processes import limit_threads
from edl_master.adapters.server_processes import ServerProcesses
from edl_master.core.identifiers import TaskKey, TaskType, Token
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.job_model import JobModel
from edl_master.parameters.plane import build_local
from edl_master.server_group.group import ParameterServerGroup
from edl_master.server_group.remote_stores import RemoteStores
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.push_report import PushReporter
from edl_master.servicers.servers import ServersServicer
from edl_proto.errors import EdlError
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, raw_calls
from edl_proto.transport.parameters import COORDINATOR, PARAMETERS
from edl_proto.v1 import job_pb2, servers_pb2_grpc

WAIT_S = 120.0
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1e-6}})


class Job:
    """Takes the events of pushes and ignores them."""

    def handle(self, event: object) -> None:
        pass


def _report_lost(server: int, how: str) -> None:
    print(f"server {server} {how}", file=sys.stderr, flush=True)


def _report_failed(error: EdlError) -> None:
    print(error, file=sys.stderr, flush=True)


def main(servers: int, floats: int, dim: int, tables: int, workers: int) -> None:
    buffers = BufferPool()
    group = None
    if servers:
        group = ParameterServerGroup(job_pb2.JobSpec(name="bench"), servers, "bench", {}, "")
    threads = futures.ThreadPoolExecutor(os.cpu_count() or 1)
    metrics = Metrics()
    reporter = PushReporter(Job(), metrics)
    if group is not None:
        stores = RemoteStores(group)
        plane = Coordinator(stores)
        model = JobModel(plane, stores, lambda *_: Async())
        log = ServersServicer(group, "bench", _report_lost, _report_failed)
        servicer = CoordinatorServicer(plane, reporter, metrics, "bench", log.follow)
        role = COORDINATOR
    else:
        local = build_local(buffers, lambda *_: Async(), executor=threads)
        plane, model, transfer = local.coordinator, local.model, PayloadTransfer(buffers, metrics)
        role = PARAMETERS
        servicer = ParametersServicer(local.plane, local.shard, transfer, reporter, "bench")
    errors = ErrorInterceptor(
        on_internal_error=lambda name, error: print(name, error, file=sys.stderr)
    )
    server = grpc.server(futures.ThreadPoolExecutor(64), options=channels.SERVER_OPTIONS)
    listener = raw_calls.listen(role, servicer, "127.0.0.1", errors.translate)
    raw_calls.add_to_server(role, servicer, server, listener)
    if group is not None:
        servers_pb2_grpc.add_ServersServicer_to_server(log, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with ExitStack() as opened:
        logs = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        pids, addresses = [os.getpid()], ()
        if group is not None:
            processes = ServerProcesses(
                sys.executable,
                servers,
                lambda number: [
                    *("--master", address, "--incarnation", "bench"),
                    *("--server", str(number), "--host", "127.0.0.1"),
                ],
                limit_threads(os.environ, servers),
                logs,
                _report_lost,
            )
            opened.callback(processes.close)
            opened.callback(group.close)
            pids += processes.pids
            addresses = group.wait_for_all(WAIT_S)
        variables = (Variable("w", (floats,), "float32", True),)
        initial = Initial(Distribution.UNIFORM, 0.0, 0.05)
        specs = tuple(TableSpec(f"rows {n}", dim, initial, 1) for n in range(tables))
        fingerprint, _ = model.describe(variables, SGD, "mean", lambda: specs)
        for worker in range(workers):
            plane.grant(TaskKey(TaskType.TRAINING, 0, worker), Token(1))
        parts = [
            (where, part.start, part.stop)
            for where, part in zip(addresses, plane.shard_layouts, strict=True)
        ]
        told = {"address": address, "fingerprint": fingerprint, "servers": parts, "pids": pids}
        print(json.dumps(told), flush=True)
        parent = os.getppid()
        while os.getppid() == parent:  # leaves with the bench, whatever ended that
            server.wait_for_termination(0.5)
            buffers.trim(time.monotonic())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:6]))
