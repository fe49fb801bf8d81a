"""A worker that computes nothing: it pushes gradients, and takes the newest values and rows.

``python -m bench.peers.pushing_worker WORLD NUMBER FLOATS DIM TABLES`` with the line of
``parameter_server_group``. For each line with a number of seconds that it reads it pushes for so
long, and prints one line of JSON: how many pushes, in how many seconds, how many of its own CPU.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import grpc
import numpy as np

from bench.peers.ids import skew_ids
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport import channels, parameters
from edl_worker.core.exchange import CallerIdentity, PushRequest, TableRows
from edl_worker.core.model_description import (
    ModelDescription,
    TableDescription,
    VariableDescription,
)
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.registration import ShardAddress
from edl_worker.core.tasks import LeaseRef, TaskKey, TaskType
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.master_parameters import MasterParameters
from edl_worker.transport.parameter_servers import ParameterServerClient

BATCHES, BATCH, FIELDS, IDS = 8, 512, 26, 1 << 20
DEADLINE_S = 120.0


class Pushing:
    """One worker's side.

    Args:
        deployment: what ``parameter_server_group`` has printed.
        number: of the worker, which is that of its task.
        floats: of the variable.
        dim: of the rows; 0: it pushes none.
        tables: that the rows are of; 26 can be divided by it.
    """

    def __init__(
        self, deployment: dict[str, Any], number: int, floats: int, dim: int, tables: int
    ) -> None:
        channel = channels.connect(deployment["address"])
        self._plane: MasterParameters | ParameterServerClient
        if deployment["servers"]:
            servers = [ShardAddress(*server) for server in deployment["servers"]]
            model = ModelDescription(
                variables=(VariableDescription("w", (floats,), "float32", trainable=True),),
                tables=tuple(
                    TableDescription(f"rows {n}", max(dim, 1), 0, 0.0, 0.0, 0, 1, 0)
                    for n in range(tables)
                ),
            )
            coordinator = parameters.CoordinatorStub(channel, deployment["address"])
            self._plane = ParameterServerClient(coordinator, servers, model, LogIndex())
        else:
            self._plane = MasterParameters(channel, deployment["address"])
        self._caller = CallerIdentity(number, "bench", deployment["fingerprint"])
        self._lease = LeaseRef(TaskKey(TaskType.TRAINING, 0, number), token=1)
        self._gradient = np.full(floats, 1e-3, np.float32)
        self._values = memoryview(bytearray(4 * floats))
        found = skew_ids(BATCHES, BATCH, FIELDS, IDS).reshape(BATCHES, BATCH, tables, -1)
        each = [[np.unique(found[batch, :, n]) for n in range(tables)] for batch in range(BATCHES)]
        self._wanted = [
            tuple(TableRows(n, ids.size) for n, ids in enumerate(of_tables)) for of_tables in each
        ]
        self._ids = [np.concatenate(of_tables) for of_tables in each]
        self._rows = [np.full((ids.size, dim), 1e-3, np.float32) for ids in self._ids]
        self._memory = memoryview(bytearray(max(4 * rows.size for rows in self._rows)))
        self._dim = dim
        self._pushed = self._version = 0

    def initialize(self) -> None:
        """Offer the values; again while a server starts, which takes long on a busy machine."""
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                values = memoryview(self._gradient).cast("B")
                self._plane.initialize(self._caller, values, DEADLINE_S)
                return
            except grpc.RpcError as error:
                found = EdlError.from_rpc(error)
                not_ready = found is not None and found.code == ErrorCode.NOT_READY
                if not not_ready or time.monotonic() > until:
                    raise

    def push(self) -> int:
        """One exchange; returns its bytes, both ways."""
        now, after = self._pushed % BATCHES, (self._pushed + 1) % BATCHES
        payloads, rows, next_rows = [self._gradient], (), ()
        if self._dim:
            rows, next_rows = self._wanted[now], self._wanted[after]
            payloads += [self._ids[now], self._ids[after], self._rows[now]]
        request = PushRequest(
            lease=self._lease,
            minibatch=self._pushed,
            minibatches=1,
            records=1,
            base_version=self._version,
            compute_s=0.0,
            wants_values=True,
            gradient_nbytes=self._gradient.nbytes,
            rows=rows,
            next_rows=next_rows,
        )
        sent = tuple(memoryview(payload).cast("B") for payload in payloads)
        buffers = (lambda n: self._values[:n]), (lambda n: self._memory[:n])
        reply = self._plane.push(self._caller, request, sent, buffers, 0.0, DEADLINE_S)
        assert reply.outcome is PushOutcome.APPLIED, reply
        self._pushed, self._version = self._pushed + 1, reply.version
        return sum(part.nbytes for part in sent) + reply.nbytes + reply.rows_nbytes

    def push_for(self, seconds: float) -> dict[str, float]:
        begun, cpu, pushes, nbytes = time.perf_counter(), time.process_time(), 0, 0
        while (took := time.perf_counter() - begun) < seconds:
            nbytes += self.push()
            pushes += 1
        cpu_s = time.process_time() - cpu
        return {"pushes": pushes, "seconds": took, "cpu_s": cpu_s, "nbytes": nbytes}


def main(deployment: str, number: int, floats: int, dim: int, tables: int) -> None:
    worker = Pushing(json.loads(deployment), number, floats, dim, tables)
    if number == 0:
        worker.initialize()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.push_for(float(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
