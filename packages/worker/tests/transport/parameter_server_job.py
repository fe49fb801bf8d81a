"""A job with fake parameter servers, and calls of the worker's client of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.transport import channels
from edl_proto.transport.parameters import NOTHING, CoordinatorStub
from edl_proto.transport.row_placement import server_of
from edl_testing.fake_parameter_servers import FakeParameterServers
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
"""Of the one table."""

WAIT_S = 200.0

CALLER = CallerIdentity(worker_id=1, incarnation="inc", layout_fingerprint="layout")
MODEL = ModelDescription(
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
PARTS = ((2, 0), (2, 2))
RATE = 2.0

Array = npt.NDArray[Any]


def as_bytes(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array)).cast("B")


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def ids_of(server: int) -> Array:
    """Ids whose rows a server has."""
    every = np.arange(ROWS)
    return every[server_of(every, len(PARTS)) == server]


VALUES = floats(0, 1), floats(2, 3, 4, 5)


class Job:
    """A master and two parameter servers, and the worker's client of them.

    Args:
        direct: whether servers are called without gRPC.
        filled: whether the servers have values, of version 1: 0, 1, and 2 to 5. Row ``i`` is
            ``[i, -i]`` then.
    """

    def __init__(self, *, direct: bool, filled: bool = True) -> None:
        self._fakes = FakeParameterServers(PARTS, DIM, direct=direct)
        self.log, self.master, self.parts = self._fakes.log, self._fakes.master, self._fakes.servers
        self._fakes.grant(PUSH.lease.token)
        if filled:
            self._fill()
        self.log_index = LogIndex()
        self.channel = channels.connect(self.master.address)
        self.client = self.connect([part.address for part in self.parts])

    def _fill(self) -> None:
        self.log.initialized, self.log.version = True, 1
        for number, (part, values) in enumerate(zip(self.parts, VALUES, strict=True)):
            part.rate = np.float32(RATE)
            part.restore(values, {int(one): floats(one, -one) for one in ids_of(number)})

    def replace_servers(self) -> None:
        """Have other servers, restored to the beginning, as after a restart of the master."""
        self.client.close()
        self._fakes.servers = self.parts = self._fakes.start_servers()
        self._fakes.grant(PUSH.lease.token)
        self._fill()
        self.client = self.connect([part.address for part in self.parts])

    def connect(self, addresses: Sequence[str]) -> ParameterServerClient:
        ranges = itertools.pairwise(BORDERS)
        servers = [
            ShardAddress(address, start, stop)
            for address, (start, stop) in zip(addresses, ranges, strict=True)
        ]
        return ParameterServerClient(CoordinatorStub(self.channel), servers, MODEL, self.log_index)

    def close(self) -> None:
        self.client.close()
        self.channel.close()
        self._fakes.close()


def push(job: Job, client: ParameterServerClient | None = None, timeout_s: float = WAIT_S) -> Any:
    """Push gradients 10.. of 4 elements, state 20.. of 2 and rows of all ids; return the reply."""
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
    reply = (client or job.client).push(CALLER, request, payloads, buffers, 0.0, timeout_s)
    return reply, np.frombuffer(values, np.float32), np.frombuffer(rows, np.float32)


def push_half(job: Job) -> Any:
    """Push gradients of 16 bits, and ask for such a reply; otherwise do what ``push`` does."""
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
    reply = job.client.push(CALLER, request, payloads, buffers, 0.0, WAIT_S)
    return reply, bytes(values[: reply.nbytes]), bytes(rows[: reply.rows_nbytes])


def pull(job: Job, **fields: Any) -> tuple[ParameterReply, Array]:
    values = bytearray(BORDERS[-1])
    buffers = (lambda n: memoryview(values)[:n]), bytearray
    reply = job.client.pull(CALLER, PullRequest(**fields), NOTHING, buffers, 0.0, WAIT_S)
    return reply, np.frombuffer(values, np.float32)
