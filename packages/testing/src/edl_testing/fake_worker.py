"""A worker for tests of masters: all calls of a real worker, without TensorFlow.

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
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

import recordio
from edl_proto import tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Peer
from edl_proto.v1 import model_pb2, parameters_pb2, task_pb2
from edl_runtime.model.trained_model import TRAINED_MODEL
from edl_testing.fake_session import CALL_S, WAIT_S, FakeSession, WorkerInstance, ref

Weights = npt.NDArray[np.float32]

_GOING_ON = (parameters_pb2.APPLIED, parameters_pb2.ALREADY_APPLIED)


R = TypeVar("R")


@dataclass
class WorkerBehavior:
    """How the workers of a test behave, and what they have seen; shared by all of them.

    Attributes:
        weights: of the counting model; records are the numbers below it, as text.
        sync: the job is synchronous, so steps need permits.
        repeat_pushes: send every push twice, as if a reply had been lost.
        at_minibatch: called before each one; may end the instance.
        master_for: the master as a worker knows it; None: the job is not secured.
    """

    weights: int
    minibatch_size: int = 4
    sync: bool = False
    repeat_pushes: bool = False
    at_minibatch: Callable[[FakeWorker, int], None] = lambda worker, minibatch: None
    master_for: Callable[[int], Peer | None] = lambda worker: None
    optimizer: str = json.dumps(
        {"class_name": "SGD", "config": {"learning_rate": 1.0, "momentum": 0.0}}
    )
    errors: list[EdlError] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    seen: list[tuple[int, str]] = field(default_factory=list)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def life(self, address: Callable[[], str]) -> Callable[[Any], int | signal.Signals]:
        """Return the function that an instance runs."""

        def live(instance: WorkerInstance) -> int | signal.Signals:
            with FakeWorker(self, instance, address()) as worker:
                try:
                    return worker.live()
                except EdlError as error:
                    self.errors.append(error)
                    instance.printed.append(str(error))
                    worker.report(error)
                    return 1

        return live


class FakeWorker(FakeSession):
    """A worker that does every type of task."""

    def __init__(self, behavior: WorkerBehavior, instance: WorkerInstance, address: str) -> None:
        super().__init__(
            instance,
            address,
            behavior.weights,
            behavior.optimizer,
            behavior.ready.release,
            behavior.master_for(int(instance.worker)),
        )
        self.behavior = behavior

    def live(self) -> int:
        self.join()
        threading.Thread(target=self.heartbeat, daemon=True).start()
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
        self.give_back("terminated")
        return 0

    # --- tasks -----------------------------------------------------------------------------

    def work(self, lease: task_pb2.Lease) -> None:
        kind = task_pb2.TaskType.Name(lease.task.type)
        self.behavior.seen.append((self.id, kind))
        done = task_pb2.CompleteRequest(
            worker_id=self.id, incarnation=self.incarnation, lease=ref(lease)
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
            if error.code != ErrorCode.STALE_LEASE:
                raise
        finally:
            if not self.instance.asked.is_set():
                self.held.pop(lease.token, None)

    def records(self, lease: task_pb2.Lease) -> list[bytes]:
        found: list[bytes] = []
        for where in lease.records:
            source = recordio.open_source(where.uri, format=where.format)
            hint = (where.block_first_record, where.block_offset)
            found += source.read(where.start, where.stop, hint=hint)
        return found

    def minibatches(self, lease: task_pb2.Lease) -> Iterator[tuple[int, list[int]]]:
        numbers = [int(record) for record in self.records(lease)]
        random.Random(lease.seed).shuffle(numbers)
        size = self.behavior.minibatch_size
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
                    self.give_back("terminated")
                    return False
                self.behavior.at_minibatch(self, minibatch)
                outcome = self.push(lease, minibatch, numbers)
                if outcome in (parameters_pb2.APPLIED, parameters_pb2.ALREADY_APPLIED):
                    break
                if outcome != parameters_pb2.STALE or not self.pull(lease):
                    return False
        done.minibatches = minibatch + 1
        done.records = done.examples = sum(part.stop - part.start for part in lease.records)
        return True

    def pull(self, lease: task_pb2.Lease) -> bool:
        """Get the newest values, in sync mode with a step permit; False if the lease is lost."""
        while True:
            header = parameters_pb2.PullHeader(
                worker_id=self.id,
                incarnation=self.incarnation,
                layout_fingerprint=self.fingerprint,
                have_version=self.version,
                permit_for=ref(lease),
                wait_s=WAIT_S,
            )
            try:
                reply = self.call_until_ready(
                    partial(self.parameters.pull, header, self.buffer, CALL_S)
                )
            except EdlError as error:
                if error.code != ErrorCode.STALE_LEASE:
                    raise
                return False
            self.version = reply.version
            if reply.permit_granted:
                return True

    def push(self, lease: task_pb2.Lease, minibatch: int, numbers: list[int]) -> int:
        gradient = np.zeros(self.behavior.weights, np.float32)
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
        for _ in range(1 + self.behavior.repeat_pushes):
            reply = self.call_until_ready(
                lambda: self.parameters.push(
                    header, (gradient.view(np.uint8).data,), self.buffer, CALL_S
                )
            )
            self.behavior.outcomes.append(reply.outcome)
            self.steps = float(len(self.behavior.outcomes))
        self.version = reply.version
        if self.behavior.sync and not reply.permit_granted and reply.outcome in _GOING_ON:
            # The last minibatch of a task leaves its permit to others; any other one waits.
            self.pull(lease)
        return int(reply.outcome)

    def call_until_ready(self, call: Callable[[], R]) -> R:
        """Call the parameter plane again while its loops are being compiled, as workers do."""
        while True:
            self.instance.check()
            try:
                return call()
            except grpc.RpcError as error:
                known = EdlError.from_rpc(error)
                if known is None or known.code != ErrorCode.NOT_READY:
                    raise known or error from error

    def buffer(self, nbytes: int) -> memoryview:
        assert nbytes == self.values.nbytes
        return self.values.view(np.uint8).data

    def frozen(self, lease: task_pb2.Lease) -> Weights:
        header = parameters_pb2.PullHeader(
            worker_id=self.id,
            incarnation=self.incarnation,
            layout_fingerprint=self.fingerprint,
            frozen=lease.frozen,
        )
        values = np.zeros(self.behavior.weights, np.float32)
        reply = self.parameters.pull(header, lambda _: values.view(np.uint8).data, CALL_S)
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
                self.behavior.at_minibatch(self, 0)
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
