"""Our parameter service with one variable and one embedding table; for benchmarks.

``python -m bench.peers.plane_server DIM [FLOATS [OPTIMIZER [DIR [IDENTITY]]]]`` prints its address
and the layout's fingerprint. With a directory it writes a checkpoint there for each line that it
reads, as a master does, and then prints the seconds that this took. With the file of an identity
its ports are secured.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.checkpoint_files import PLANE, Checkpoint
from edl_master.adapters.checkpoints import LocalCheckpoints
from edl_master.core.identifiers import TaskKey, TaskType, Token, WorkerId
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.plane import build_local
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.push_report import PushReporter
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, raw_calls
from edl_proto.transport.parameters import PARAMETERS


class Job:
    """Takes the events of pushes and ignores them."""

    def handle(self, event: object) -> None:
        pass


def main(
    dim: int, floats: int = 1, optimizer: str = "SGD", directory: str = "", identity: str = ""
) -> None:
    access_control = AccessControl(Credentials(Path(identity))) if identity else None
    buffers = BufferPool()
    local = build_local(
        buffers, lambda *_: Async(), executor=futures.ThreadPoolExecutor(os.cpu_count() or 1)
    )
    plane, metrics = local.coordinator, Metrics()
    table = TableSpec("rows", dim, Initial(Distribution.UNIFORM, 0.0, 0.05), 1)
    config = json.dumps({"class_name": optimizer, "config": {"learning_rate": 0.01}})
    weights = (Variable("w", (floats,), "float32", True),)
    fingerprint, _ = local.model.describe(weights, config, "mean", lambda: (table,))
    local.plane.initialize(WorkerId(0), memoryview(bytes(4 * floats)))
    plane.grant(TaskKey(TaskType.TRAINING, 0, 0), Token(1))
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        interceptors=[access_control.interceptor] if access_control else [],
        options=channels.SERVER_OPTIONS,
    )
    reporter = PushReporter(Job(), metrics)
    transfer = PayloadTransfer(buffers, metrics)
    servicer = ParametersServicer(local.plane, local.shard, transfer, reporter, "bench")
    errors = ErrorInterceptor()
    listener = raw_calls.listen(
        PARAMETERS, servicer, "127.0.0.1", errors.translate, 0, access_control
    )
    raw_calls.add_to_server(PARAMETERS, servicer, server, listener)
    port = channels.add_port(server, "127.0.0.1:0", access_control)
    server.start()
    print(f"127.0.0.1:{port} {fingerprint}", flush=True)
    if directory:
        threading.Thread(target=write, args=(plane, Path(directory)), daemon=True).start()
    parent = os.getppid()
    while os.getppid() == parent:  # leaves with the bench, whatever ended that
        server.wait_for_termination(0.5)
        buffers.trim(time.monotonic())


def write(plane: Coordinator, directory: Path) -> None:
    """A checkpoint for each line."""
    checkpoints = LocalCheckpoints(directory, "bench", keep=1)
    checkpoints.prepare()
    for _ in sys.stdin:
        begun = time.perf_counter()
        pending = plane.snapshot("")
        assert pending is not None
        snapshot = pending.get()
        checkpoints.write(Checkpoint({PLANE: snapshot.meta}, snapshot.arrays))
        del pending, snapshot
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:6])
