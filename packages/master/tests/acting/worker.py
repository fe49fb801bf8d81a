"""A worker for tests: everything that a real one says to its master, without TensorFlow.

It trains the counting model: one weight per record of the data, learning rate 1, gradient -1
for each record of a minibatch. After E epochs every weight is exactly E, or a record was lost
or repeated.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt
from acting.threads import Died, Life, ThreadInstance

import recordio
from edl_proto import tensor
from edl_proto.errors import EdlError
from edl_proto.trained_model import TRAINED_MODEL
from edl_proto.transport import channels
from edl_proto.transport.parameters import ParametersStub
from edl_proto.v1 import error_pb2, model_pb2, parameters_pb2, task_pb2, task_pb2_grpc

CALL_S = 30.0
WAIT_S = 0.5
HEARTBEAT_S = 0.2

Weights = npt.NDArray[np.float32]


@dataclass
class Acting:
    """How workers of a test behave; shared by all of them, and told what they saw.

    Attributes:
        weights: of the counting model; records are the numbers below it, as text.
        update: of the job; in sync mode a step permit is asked for.
        repeat_pushes: send every push twice, as if an answer had been lost.
        at_minibatch: called before each one; may end the instance.
        seed: of what is random here.
    """

    weights: int
    minibatch_size: int = 4
    sync: bool = False
    repeat_pushes: bool = False
    at_minibatch: Callable[[Worker, int], None] = lambda worker, minibatch: None
    optimizer: str = json.dumps(
        {"class_name": "SGD", "config": {"learning_rate": 1.0, "momentum": 0.0}}
    )
    errors: list[EdlError] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    seen: list[tuple[int, str]] = field(default_factory=list)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def life(self, address: Callable[[], str]) -> Life:
        """What instances do."""

        def live(instance: ThreadInstance) -> int | signal.Signals:
            with Worker(self, instance, address()) as worker:
                try:
                    return worker.live()
                except EdlError as error:
                    self.errors.append(error)
                    instance.printed.append(str(error))
                    worker.report(error)
                    return 1

        return live


class Worker:
    """One instance's session with the master."""

    def __init__(self, acting: Acting, instance: ThreadInstance, address: str) -> None:
        self.acting = acting
        self.instance = instance
        self.id = int(instance.worker)
        self.channel = channels.connect(address)
        self.tasks = task_pb2_grpc.TasksStub(self.channel)
        self.parameters = ParametersStub(self.channel, address)
        self.incarnation = ""
        self.job = ""
        self.fingerprint = ""
        self.version: int | None = None
        self.values = np.zeros(acting.weights, np.float32)
        self.held: dict[int, task_pb2.LeaseRef] = {}
        self.lost: set[int] = set()
        self.leave = ""
        self.stopped = threading.Event()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.parameters.close()
        self.channel.close()

    def call(self, method: Callable[..., object], request: object) -> object:
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
                worker_id=self.id, instance=self.instance.name, host="threads", pid=self.id + 1
            ),
        )
        self.incarnation, self.job = reply.incarnation, reply.job.name
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
        self.acting.ready.release()

    def describe(self) -> task_pb2.ModelDescription:
        if not self.acting.weights:
            return task_pb2.ModelDescription(model_name="none")
        return task_pb2.ModelDescription(
            model_name="counting",
            variables=[
                task_pb2.Variable(
                    name="weights", shape=[self.acting.weights], dtype="float32", trainable=True
                )
            ],
            optimizer_json=self.acting.optimizer,
            reduction="sum",
        )

    def initialize(self) -> parameters_pb2.InitializeReply:
        values = memoryview(np.zeros(self.acting.weights, np.float32)).cast("B")
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

    # --- a life ----------------------------------------------------------------------------

    def live(self) -> int:
        self.join()
        threading.Thread(target=self.beat, daemon=True).start()
        while not self.instance.asked.is_set():
            self.instance.check()
            if self.leave:
                return 0
            reply = self.ask()
            match reply.WhichOneof("answer"):
                case "lease":
                    self.work(reply.lease)
                case "leave":
                    return 0
                case _:
                    time.sleep(reply.wait.retry_in_s / 4)
        self.give_back("preempted")
        return 0

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

    def beat(self) -> None:
        while not self.stopped.wait(HEARTBEAT_S) and not self.instance.killed.is_set():
            request = task_pb2.HeartbeatRequest(
                worker_id=self.id,
                instance=self.instance.name,
                incarnation=self.incarnation,
                leases=list(self.held.values()),
                phase=task_pb2.COMPUTING,
                counters={"edl_worker_steps_total": float(len(self.acting.outcomes))},
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
        """This worker cannot work at all."""
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

    # --- tasks -----------------------------------------------------------------------------

    def work(self, lease: task_pb2.Lease) -> None:
        kind = task_pb2.TaskType.Name(lease.task.type)
        self.acting.seen.append((self.id, kind))
        done = task_pb2.CompleteRequest(
            worker_id=self.id, incarnation=self.incarnation, lease=ref(lease), seconds=0.01
        )
        try:
            match kind:
                case "TRAINING":
                    if not self.train(lease, done):
                        return
                case "EVALUATION":
                    self.evaluate(lease, done)
                case "EVALUATION_SUMMARY":
                    self.summarize(lease, done)
                case "PREDICTION":
                    self.predict(lease, done)
                case "EXPORT":
                    self.export(lease)
            self.call(self.tasks.Complete, done)
        except EdlError as error:
            if error.code != error_pb2.STALE_LEASE:
                raise
        finally:
            if not self.instance.asked.is_set():
                self.held.pop(lease.token, None)

    def records(self, lease: task_pb2.Lease) -> list[bytes]:
        where = lease.records
        source = recordio.open_source(where.uri, format=where.format)
        hint = (where.block_first_record, where.block_offset)
        return list(source.read(where.start, where.stop, hint=hint))

    def minibatches(self, lease: task_pb2.Lease) -> Iterator[tuple[int, list[int]]]:
        numbers = [int(record) for record in self.records(lease)]
        random.Random(lease.seed).shuffle(numbers)
        size = self.acting.minibatch_size
        for minibatch, start in enumerate(range(0, len(numbers), size)):
            if minibatch >= lease.skip_minibatches:
                yield minibatch, numbers[start : start + size]

    def train(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> bool:
        """Train on a task; False if it is not this worker's any more."""
        if not self.pull(lease):
            return False
        minibatch = lease.skip_minibatches - 1
        for minibatch, numbers in self.minibatches(lease):
            while True:
                self.instance.check()
                if self.instance.asked.is_set():
                    self.give_back("preempted")
                    return False
                self.acting.at_minibatch(self, minibatch)
                outcome = self.push(lease, minibatch, numbers)
                if outcome in (parameters_pb2.APPLIED, parameters_pb2.ALREADY_APPLIED):
                    break
                if outcome != parameters_pb2.STALE or not self.pull(lease):
                    return False
        done.minibatches = minibatch + 1
        done.records = done.examples = lease.records.stop - lease.records.start
        return True

    def pull(self, lease: task_pb2.Lease) -> bool:
        """Get the newest values, in sync mode with a step permit; False if the lease is lost."""
        while True:
            self.instance.check()
            header = parameters_pb2.PullHeader(
                worker_id=self.id,
                incarnation=self.incarnation,
                layout_fingerprint=self.fingerprint,
                have_version=self.version,
                permit_for=ref(lease),
                wait_s=WAIT_S,
            )
            try:
                reply = self.parameters.pull(header, self.buffer, CALL_S)
            except grpc.RpcError as error:
                known = EdlError.from_rpc(error)
                if known is None or known.code != error_pb2.STALE_LEASE:
                    raise known or error from error
                return False
            self.version = reply.version
            if reply.permit_granted:
                return True

    def push(self, lease: task_pb2.Lease, minibatch: int, numbers: list[int]) -> int:
        gradient = np.zeros(self.acting.weights, np.float32)
        gradient[numbers] = -1.0
        assert self.version is not None
        header = parameters_pb2.PushHeader(
            worker_id=self.id,
            incarnation=self.incarnation,
            layout_fingerprint=self.fingerprint,
            claim=parameters_pb2.PushClaim(
                lease=ref(lease),
                minibatch=minibatch,
                records=len(numbers),
                base_version=self.version,
            ),
            gradient=parameters_pb2.GradientHeader(nbytes=gradient.nbytes),
            step=parameters_pb2.StepReport(loss=1.0 / (1 + self.version), compute_s=0.001),
            next=parameters_pb2.NextStep(wait_s=WAIT_S),
        )
        for _ in range(1 + self.acting.repeat_pushes):
            self.instance.check()
            try:
                reply = self.parameters.push(
                    header, (memoryview(gradient).cast("B"),), self.buffer, CALL_S
                )
            except grpc.RpcError as error:
                raise EdlError.from_rpc(error) or error from error
            self.acting.outcomes.append(reply.outcome)
        self.version = reply.version
        if self.acting.sync and not reply.permit_granted and reply.outcome in _GOING_ON:
            # The last minibatch of a task leaves its permit to others; any other one waits.
            self.pull(lease)
        return int(reply.outcome)

    def buffer(self, nbytes: int) -> memoryview:
        assert nbytes == self.values.nbytes
        return memoryview(self.values).cast("B")

    def frozen(self, lease: task_pb2.Lease) -> Weights:
        header = parameters_pb2.PullHeader(
            worker_id=self.id,
            incarnation=self.incarnation,
            layout_fingerprint=self.fingerprint,
            frozen=lease.frozen,
        )
        values = np.zeros(self.acting.weights, np.float32)
        reply = self.parameters.pull(header, lambda _: memoryview(values).cast("B"), CALL_S)
        assert reply.version == lease.parameter_version
        assert reply.nbytes
        return values

    def evaluate(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        numbers = [int(record) for record in self.records(lease)]
        weights = self.frozen(lease)[numbers] if lease.frozen else np.ones(len(numbers))
        done.records = done.examples = len(numbers)
        state = [np.float64(weights.sum()), np.int64(len(numbers))]
        done.metric_states.add(
            name="mean_weight", variables=[tensor.encode(np.asarray(v)) for v in state]
        )

    def summarize(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        (state,) = lease.metric_states
        total, count = (tensor.decode(v) for v in state.variables)
        assert total.dtype == np.float64
        assert count.dtype == np.int64
        done.metrics[state.name] = float(total / count)

    def predict(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        records = self.records(lease)
        with recordio.Writer(lease.part_path) as writer:
            for record in records:
                self.acting.at_minibatch(self, 0)
                writer.write(b"predicted " + record)
        done.records = len(records)

    def export(self, lease: task_pb2.Lease) -> None:
        place = Path(lease.part_path)
        place.mkdir()
        np.save(place / "weights.npy", self.frozen(lease))
        (place / "info.json").write_text(
            json.dumps(
                {
                    "version": lease.export.parameter_version,
                    "records": lease.export.records_trained,
                    "epochs": lease.export.epochs,
                    "metrics": dict(lease.export.metrics),
                }
            )
        )
        trained = model_pb2.TrainedModel(job=self.job)
        (place / TRAINED_MODEL).write_bytes(trained.SerializeToString())


_GOING_ON = (parameters_pb2.APPLIED, parameters_pb2.ALREADY_APPLIED)


def ref(lease: task_pb2.Lease) -> task_pb2.LeaseRef:
    return task_pb2.LeaseRef(task=lease.task, token=lease.token)


__all__ = ["Acting", "Died", "Worker", "ref"]
