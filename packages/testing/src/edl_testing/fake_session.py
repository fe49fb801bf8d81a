"""The session of a fake worker with a master: join, lease, send heartbeats, return, report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import grpc
import numpy as np

from edl_proto.errors import EdlError
from edl_proto.identity.credentials import Peer
from edl_proto.transport import channels
from edl_proto.transport.parameters import ParametersStub
from edl_proto.v1 import parameters_pb2, task_pb2, task_pb2_grpc

CALL_S = 30.0
WAIT_S = 0.5
HEARTBEAT_S = 0.2

T = TypeVar("T")


class WorkerInstance(Protocol):
    """The thread or process of a fake worker, which the test can end."""

    worker: int
    name: str
    asked: threading.Event
    killed: threading.Event
    printed: list[str]

    def check(self) -> None:
        """Raise if the instance was killed."""


class FakeSession:
    """One instance's session with the master.

    Args:
        weights: of the counting model; 0: the model has no variables.
        optimizer: as Keras serializes it.
        on_ready: called when the worker has joined.
        master: the peer that must be at the address; None: the job is not secured.
    """

    def __init__(
        self,
        instance: WorkerInstance,
        address: str,
        weights: int,
        optimizer: str,
        on_ready: Callable[[], None],
        master: Peer | None = None,
    ) -> None:
        self.weights = weights
        self.optimizer = optimizer
        self.on_ready = on_ready
        self.steps = 0.0
        self.instance = instance
        self.id = int(instance.worker)
        self.channel = channels.connect(address, master)
        self.tasks = task_pb2_grpc.TasksStub(self.channel)
        self.parameters = ParametersStub(self.channel, address, master)
        self.incarnation = ""
        self.job = ""
        self.fingerprint = ""
        self.version: int | None = None
        self.values = np.zeros(weights, np.float32)
        self.held: dict[int, task_pb2.LeaseRef] = {}
        self.lost: set[int] = set()
        self.leave = ""
        self.stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.parameters.close()
        self.channel.close()

    def call(self, method: Callable[..., T], request: object) -> T:
        self.instance.check()
        try:
            return method(request, timeout=CALL_S)
        except grpc.RpcError as error:
            raise EdlError.from_rpc(error) or error from error

    # --- joining ---------------------------------------------------------------------------

    def join(self) -> None:
        reply = self.call(
            self.tasks.Register,
            task_pb2.RegisterRequest(
                worker_id=self.id,
                instance=self.instance.name,
                host="threads",
                pid=self.id + 1,
                environment={"edl-worker": "0.0.fake"},
            ),
        )
        self.incarnation = reply.incarnation
        self.job = reply.job.export.job or reply.job.name
        ready = self.call(
            self.tasks.Ready,
            task_pb2.ReadyRequest(
                worker_id=self.id,
                instance=self.instance.name,
                incarnation=self.incarnation,
                model=self.describe(),
            ),
        )
        self.fingerprint = ready.layout_fingerprint
        if ready.send_initial_values:
            self.initialize()
        self.on_ready()

    def describe(self) -> task_pb2.ModelDescription:
        if not self.weights:
            return task_pb2.ModelDescription()
        return task_pb2.ModelDescription(
            variables=[
                task_pb2.Variable(
                    name="weights", shape=[self.weights], dtype="float32", trainable=True
                )
            ],
            optimizer_json=self.optimizer,
            reduction="sum",
        )

    def initialize(self) -> parameters_pb2.InitializeReply:
        values = np.zeros(self.weights, np.float32).view(np.uint8).data
        header = parameters_pb2.InitializeHeader(
            worker_id=self.id,
            incarnation=self.incarnation,
            layout_fingerprint=self.fingerprint,
            nbytes=values.nbytes,
        )
        try:
            return self.parameters.initialize(header, values, CALL_S)
        except grpc.RpcError as error:
            raise EdlError.from_rpc(error) or error from error

    def ask(self, wait_s: float = WAIT_S) -> task_pb2.LeaseReply:
        reply = self.call(
            self.tasks.Lease,
            task_pb2.LeaseRequest(
                worker_id=self.id,
                instance=self.instance.name,
                incarnation=self.incarnation,
                wait_s=wait_s,
            ),
        )
        if reply.HasField("lease"):
            self.held[reply.lease.token] = ref(reply.lease)
        return reply

    def heartbeat(self) -> None:
        while not self.stopped.wait(HEARTBEAT_S) and not self.instance.killed.is_set():
            request = task_pb2.HeartbeatRequest(
                worker_id=self.id,
                instance=self.instance.name,
                incarnation=self.incarnation,
                leases=list(self.held.values()),
                phase=task_pb2.COMPUTING,
                counters={"edl_worker_steps_total": self.steps},
            )
            try:
                reply = self.tasks.Heartbeat(request, timeout=CALL_S)
            except (grpc.RpcError, ValueError):
                continue
            self.lost |= {lease.token for lease in reply.lost}
            self.leave = reply.leave_reason

    def give_back(self, reason: str) -> None:
        self.call(
            self.tasks.Return,
            task_pb2.ReturnRequest(
                worker_id=self.id,
                incarnation=self.incarnation,
                leases=list(self.held.values()),
                reason=reason,
                leaving=True,
            ),
        )
        self.held.clear()

    def report(self, error: EdlError) -> None:
        """Report that this worker cannot work at all."""
        self.call(
            self.tasks.Fail,
            task_pb2.FailRequest(
                worker_id=self.id,
                incarnation=self.incarnation,
                instance=self.instance.name,
                error=error.to_proto(),
                permanent=True,
            ),
        )


def ref(lease: task_pb2.Lease) -> task_pb2.LeaseRef:
    return task_pb2.LeaseRef(task=lease.task, token=lease.token)
