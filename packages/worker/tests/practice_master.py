"""A master to test workers against: real gRPC, parameters in numpy, the rules of the ledger.

It has one job, given as stages of tasks: a stage begins when all tasks of the one before are
done, and freezes the parameters as they are then under the name ``stage-N``. Updates are plain
SGD. What goes wrong is up to the test: hooks, revoked leases, restarts.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import ml_dtypes
import numpy as np

from edl_proto import tensor
from edl_proto.errors import EdlError, ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.transport.frames import fill, split
from edl_proto.transport.parameters import PARAMETERS
from edl_proto.transport.raw_calls import add_to_server
from edl_proto.v1 import error_pb2, job_pb2, parameters_pb2, task_pb2, task_pb2_grpc

HALVES = {job_pb2.FLOAT16: np.float16, job_pb2.BFLOAT16: ml_dtypes.bfloat16}
"""What trainable numbers travel as, if they have 16 bits; all are float32 else."""

WAIT_S = 120.0
"""Deadline of everything that a test waits for."""


@dataclass(slots=True)
class Task:
    """A task and what has become of it."""

    lease: task_pb2.Lease
    applied: int = 0
    token: int = 0  # of the present lease; 0: nobody holds it
    done: bool = False
    complete: task_pb2.CompleteRequest | None = None
    failures: list[task_pb2.FailRequest] = field(default_factory=list)

    @property
    def name(self) -> tuple[int, int, int]:
        key = self.lease.task
        return key.type, key.round, key.number


@dataclass(slots=True)
class Heard:
    """What workers have said, in order."""

    registered: list[task_pb2.RegisterRequest] = field(default_factory=list)
    ready: list[task_pb2.ReadyRequest] = field(default_factory=list)
    pushes: list[tuple[parameters_pb2.PushHeader, int]] = field(default_factory=list)
    pulls: list[parameters_pb2.PullHeader] = field(default_factory=list)
    returned: list[task_pb2.ReturnRequest] = field(default_factory=list)
    failed: list[task_pb2.FailRequest] = field(default_factory=list)
    heartbeats: list[task_pb2.HeartbeatRequest] = field(default_factory=list)

    @property
    def applied(self) -> list[parameters_pb2.PushHeader]:
        """The pushes that are in the model."""
        return [header for header, outcome in self.pushes if outcome == parameters_pb2.APPLIED]

    @property
    def minibatches(self) -> list[tuple[int, int]]:
        """Task and number of every minibatch that is in the model."""
        return [
            (header.claim.lease.task.number, header.claim.minibatch + i)
            for header in self.applied
            for i in range(header.claim.minibatches)
        ]


PushHook = Callable[["PracticeMaster", parameters_pb2.PushHeader], int | None]


class PracticeMaster:
    """One job on one port of the loopback address.

    Args:
        job: what workers are told at registration.
        stages: tasks by stage; leases without token.
        rate: learning rate of SGD.
        grads_to_wait: gradients per update when the job is synchronous.

    Attributes:
        on_push: called under the lock before a push is judged; an outcome replaces the judgement.
        workers_wanted: no task is leased before so many workers are ready.
        cut_next_answer: the next push takes effect, but its answer does not arrive.
    """

    def __init__(
        self,
        job: job_pb2.JobSpec,
        stages: list[list[task_pb2.Lease]],
        *,
        rate: float = 0.1,
        grads_to_wait: int = 1,
    ) -> None:
        self.job = job
        self.rate = rate
        self.grads_to_wait = grads_to_wait
        self.stages = [[Task(lease) for lease in stage] for stage in stages]
        self.heard = Heard()
        self.on_push: PushHook | None = None
        self.cut_next_answer = False
        self.workers_wanted = 1
        self.send_stacks = False
        self.leave_reason = ""
        self.lost: list[task_pb2.LeaseRef] = []
        self.changed = threading.Condition()
        self.variables: list[task_pb2.Variable] = []
        self.values = np.zeros(0, np.uint8)
        self.version = 0
        self.initialized = False
        self.frozen: dict[str, tuple[int, np.ndarray[Any, Any]]] = {}
        self.entered = 0
        self.slots: set[int] = set()
        self.gathered: list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.incarnation = "first"
        self._tokens = itertools.count(1)
        self._port = 0
        self._server: grpc.Server | None = None

    # --- life ------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> PracticeMaster:
        server = grpc.server(
            futures.ThreadPoolExecutor(16),
            options=channels.SERVER_OPTIONS,
            interceptors=[ErrorInterceptor(None, lambda name, error: print(name, repr(error)))],
        )
        task_pb2_grpc.add_TasksServicer_to_server(_Tasks(self), server)
        add_to_server(PARAMETERS, _Parameters(self), server)
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def snapshot(self) -> dict[str, Any]:
        """Ledger and parameters, together."""
        with self.changed:
            return self.snapshot_held()

    def snapshot_held(self) -> dict[str, Any]:
        """The same, by whoever holds the lock."""
        return {
            "values": self.values.copy(),
            "version": self.version,
            "tasks": [(task.applied, task.done) for task in self.all_tasks()],
        }

    def restart(self, snapshot: dict[str, Any]) -> None:
        """Come back as another incarnation, as it was when the snapshot was taken."""
        self.stop()
        with self.changed:
            self.incarnation += "+"
            self.slots.clear()
            self.gathered.clear()
            self.values, self.version = snapshot["values"].copy(), snapshot["version"]
            for task, (applied, done) in zip(self.all_tasks(), snapshot["tasks"], strict=True):
                task.applied, task.done, task.token = applied, done, 0
        self.start()

    def wait_for(self, what: Callable[[], bool], named: str) -> None:
        """Wait until something is so; no longer when a worker says that it cannot work."""

        def given_up() -> list[task_pb2.FailRequest]:
            return [failed for failed in self.heard.failed if not failed.HasField("lease")]

        with self.changed:
            self.changed.wait_for(lambda: what() or given_up(), WAIT_S)
            if not what():
                raise AssertionError(f"not within {WAIT_S:.0f} s: {named}; {given_up()}")

    # --- tasks -----------------------------------------------------------------------------

    def all_tasks(self) -> Iterator[Task]:
        return itertools.chain.from_iterable(self.stages)

    def stage(self) -> int | None:
        """The first stage that is not done; entering it freezes the parameters."""
        for number, tasks in enumerate(self.stages):
            if not all(task.done for task in tasks):
                if number >= self.entered:
                    self.entered = number + 1
                    self.frozen[f"stage-{number}"] = self.version, self.values.copy()
                return number
        return None

    def held(self, ref: task_pb2.LeaseRef) -> Task:
        for task in self.all_tasks():
            if task.lease.task == ref.task and task.token == ref.token and ref.token:
                return task
        raise EdlError(error_pb2.STALE_LEASE, f"lease {ref.token} is not held")

    def revoke(self, ref: task_pb2.LeaseRef) -> None:
        """Take a task from its holder."""
        with self.changed:
            with contextlib.suppress(EdlError):
                self.held(ref).token = 0
            self.slots.discard(ref.token)
            self.changed.notify_all()

    def grant(self) -> task_pb2.Lease | None:
        """Give out the next task of the stage, if one is free."""
        number = self.stage()
        if number is None:
            return None
        for task in self.stages[number]:
            if task.done or task.token or len(task.failures) >= 3:
                continue
            task.token = next(self._tokens)
            lease = task_pb2.Lease()
            lease.CopyFrom(task.lease)
            lease.token = task.token
            lease.skip_minibatches = task.applied
            lease.ttl_s = 10.0
            if lease.task.type in (task_pb2.EVALUATION, task_pb2.EVALUATION_SUMMARY):
                trains = self.job.type == job_pb2.TRAIN
                frozen = f"stage-{number - self._summaries(number)}" if trains else ""
                lease.frozen = lease.frozen or frozen
            if lease.task.type == task_pb2.EXPORT:
                lease.frozen = f"stage-{number}"
                lease.export.parameter_version = self.version
            if lease.task.type == task_pb2.EVALUATION_SUMMARY:
                lease.metric_states.extend(self.merged(self.stages[number - 1]))
            return lease
        return None

    def _summaries(self, number: int) -> int:
        types = {task.lease.task.type for task in self.stages[number]}
        return 1 if task_pb2.EVALUATION_SUMMARY in types else 0

    def merged(self, tasks: list[Task]) -> list[task_pb2.MetricState]:
        """The metric states of completed tasks, added up."""
        sums: dict[str, list[np.ndarray[Any, Any]]] = {}
        for task in tasks:
            assert task.complete is not None
            for state in task.complete.metric_states:
                arrays = [tensor.decode(value) for value in state.variables]
                if state.name in sums:
                    arrays = [a + b for a, b in zip(sums[state.name], arrays, strict=True)]
                sums[state.name] = arrays
        return [
            task_pb2.MetricState(
                name=name, variables=[tensor.encode(np.asarray(a)) for a in arrays]
            )
            for name, arrays in sums.items()
        ]

    # --- parameters ------------------------------------------------------------------------

    def by_name(self, payload: np.ndarray[Any, Any] | None = None) -> dict[str, Any]:
        """The values of all variables."""
        payload = self.values if payload is None else payload
        found, at = {}, 0
        for variable in self.variables:
            size = int(np.prod(variable.shape)) * np.dtype(variable.dtype).itemsize
            raw = payload[at : at + size].copy()
            found[variable.name] = raw.view(variable.dtype).reshape(tuple(variable.shape))
            at += size
        return found

    @property
    def trainable_nbytes(self) -> int:
        return sum(
            int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize
            for v in self.variables
            if v.trainable
        )

    def push(
        self,
        header: parameters_pb2.PushHeader,
        gradient: np.ndarray[Any, Any],
        state: np.ndarray[Any, Any],
    ) -> int:
        """Judge and apply one push under the lock, as the ledger says."""
        outcome = self.on_push(self, header) if self.on_push else None
        if outcome is None:
            outcome = self._judge(header)
        if outcome == parameters_pb2.APPLIED:
            task = self.held(header.claim.lease)
            if self.sync:
                self.slots.discard(header.claim.lease.token)
                self.gathered.append((header.claim.records, gradient, state))
                if len(self.gathered) == self.grads_to_wait:
                    self._join()
            elif self.local:
                self._update(-gradient / self.rate, state)
                self.version += header.claim.minibatches - 1
            else:
                self._update(gradient, state)
            task.applied += header.claim.minibatches
        self.heard.pushes.append((header, outcome))
        self.changed.notify_all()
        return outcome

    @property
    def local(self) -> bool:
        """Whether workers push by how much their own updates have moved the values."""
        return bool(self.job.training.local_steps > 1)

    @property
    def sync(self) -> bool:
        return bool(self.job.training.update == job_pb2.SYNC)

    def _judge(self, header: parameters_pb2.PushHeader) -> int:
        try:
            task = self.held(header.claim.lease)
        except EdlError:
            return parameters_pb2.REFUSED
        if header.claim.minibatch + header.claim.minibatches <= task.applied:
            return parameters_pb2.ALREADY_APPLIED
        if header.claim.minibatch != task.applied:
            return parameters_pb2.OUT_OF_ORDER
        without_slot = self.sync and header.claim.lease.token not in self.slots
        if header.claim.base_version > self.version or without_slot:
            return parameters_pb2.STALE
        if self.sync and header.claim.base_version != self.version:
            return parameters_pb2.STALE
        return parameters_pb2.APPLIED

    def _join(self) -> None:
        total = sum(records for records, _, _ in self.gathered)
        parts = [(records / total, g, s) for records, g, s in self.gathered]
        self.gathered.clear()
        self._update(
            sum(weight * g for weight, g, _ in parts),  # type: ignore[arg-type]
            sum(weight * s for weight, _, s in parts),  # type: ignore[arg-type]
        )

    def _update(self, gradient: np.ndarray[Any, Any], state: np.ndarray[Any, Any]) -> None:
        """SGD; everything is float32 here."""
        values = self.values.view(np.float32)
        values[: gradient.size] -= np.float32(self.rate) * gradient.astype(np.float32)
        if state.size:
            values[gradient.size :] += state.astype(np.float32)
        self.version += 1

    def take_slot(self, ref: task_pb2.LeaseRef, wait_s: float) -> bool:
        """Wait for a step slot; always there when the job is not synchronous."""
        if not self.sync:
            return True

        def free() -> bool:
            if ref.token not in self.slots and (
                len(self.slots) + len(self.gathered) < self.grads_to_wait
            ):
                with contextlib.suppress(EdlError):
                    self.held(ref)
                    self.slots.add(ref.token)
            return ref.token in self.slots

        return self.changed.wait_for(free, wait_s)


class _Tasks(task_pb2_grpc.TasksServicer):
    def __init__(self, master: PracticeMaster) -> None:
        self._master = master

    def _known(self, incarnation: str) -> PracticeMaster:
        if incarnation != self._master.incarnation:
            raise EdlError(error_pb2.STALE_INCARNATION, "the master was replaced")
        return self._master

    def Register(self, request: Any, context: Any) -> task_pb2.RegisterReply:
        with self._master.changed:
            self._master.heard.registered.append(request)
            self._master.changed.notify_all()
        return task_pb2.RegisterReply(
            job=self._master.job, incarnation=self._master.incarnation, heartbeat_every_s=0.1
        )

    def Ready(self, request: Any, context: Any) -> task_pb2.ReadyReply:
        master = self._known(request.incarnation)
        with master.changed:
            master.heard.ready.append(request)
            master.variables = list(request.model.variables)
            master.changed.notify_all()
            return task_pb2.ReadyReply(
                send_initial_values=bool(master.variables) and not master.initialized,
                layout_fingerprint="layout",
            )

    def Lease(self, request: Any, context: Any) -> task_pb2.LeaseReply:
        master = self._known(request.incarnation)
        with master.changed:
            waiting = len(master.heard.ready) < master.workers_wanted
            lease = None if waiting else master.grant()
            if lease is not None:
                master.changed.notify_all()
                return task_pb2.LeaseReply(lease=lease)
            if master.stage() is None:
                return task_pb2.LeaseReply(leave=task_pb2.Leave(reason="job-over"))
        return task_pb2.LeaseReply(wait=task_pb2.Wait(retry_in_s=0.02, reason="nothing now"))

    def Complete(self, request: Any, context: Any) -> task_pb2.CompleteReply:
        master = self._known(request.incarnation)
        with master.changed:
            task = master.held(request.lease)
            if task.lease.task.type == task_pb2.TRAINING and request.minibatches != task.applied:
                raise EdlError(
                    error_pb2.STALE_LEASE, f"{request.minibatches} minibatches, not {task.applied}"
                )
            task.done, task.token, task.complete = True, 0, request
            if master.gathered and all(t.done for t in master.stages[master.entered - 1]):
                master._join()
            master.changed.notify_all()
        return task_pb2.CompleteReply()

    def Fail(self, request: Any, context: Any) -> task_pb2.FailReply:
        master = self._known(request.incarnation)
        with master.changed:
            master.heard.failed.append(request)
            if request.HasField("lease"):
                task = master.held(request.lease)
                task.failures.append(request)
                task.token = 0
                task.done = request.permanent or len(task.failures) >= 3
            master.changed.notify_all()
        return task_pb2.FailReply()

    def Return(self, request: Any, context: Any) -> task_pb2.ReturnReply:
        master = self._known(request.incarnation)
        for lease in request.leases:
            master.revoke(lease)
        with master.changed:
            master.heard.returned.append(request)
            master.changed.notify_all()
        return task_pb2.ReturnReply()

    def Heartbeat(self, request: Any, context: Any) -> task_pb2.HeartbeatReply:
        master = self._known(request.incarnation)
        with master.changed:
            master.heard.heartbeats.append(request)
            master.changed.notify_all()
            return task_pb2.HeartbeatReply(
                lost=master.lost,
                leave=bool(master.leave_reason),
                leave_reason=master.leave_reason,
                send_stacks=master.send_stacks and not request.stacks,
            )


class _Parameters:
    def __init__(self, master: PracticeMaster) -> None:
        self._master = master

    def _known(self, header: Any) -> PracticeMaster:
        if header.incarnation != self._master.incarnation:
            raise EdlError(error_pb2.STALE_INCARNATION, "the master was replaced")
        assert header.layout_fingerprint == "layout"
        return self._master

    def initialize(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.InitializeHeader.FromString(next(frames))
        values = np.empty(header.nbytes, np.uint8)
        fill(frames, values.data)
        master = self._known(header)
        with master.changed:
            accepted = not master.initialized
            if accepted:
                master.values, master.initialized = values, True
            master.changed.notify_all()
        yield parameters_pb2.InitializeReply(
            accepted=accepted, version=master.version
        ).SerializeToString()

    def pull(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.PullHeader.FromString(next(frames))
        master = self._known(header)
        reply = parameters_pb2.PullReply(initialized=master.initialized)
        with master.changed:
            master.heard.pulls.append(header)
            if header.HasField("permit_for"):
                reply.permit_granted = master.take_slot(header.permit_for, header.wait_s)
            version, values = master.version, master.values
            if header.frozen:
                version, values = master.frozen[header.frozen]
            have = header.have_version if header.HasField("have_version") else None
            copy = values.copy() if header.frozen or have != version else None
            master.changed.notify_all()
        reply.version = version
        yield from _reply(reply, copy, header.precision, master.trainable_nbytes)

    def put_rows(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        raise NotImplementedError("the practice master serves no embedding tables")

    scan_rows = put_rows

    def push(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.PushHeader.FromString(next(frames))
        half = HALVES.get(header.gradient.precision)
        gradient = np.empty(header.gradient.nbytes // (2 if half else 4), half or np.float32)
        state = np.empty(header.gradient.state_nbytes // 4, np.float32)
        for array in (gradient, state):
            fill(frames, array.view(np.uint8).data)
        gradient = gradient.astype(np.float32)
        master = self._known(header)
        reply = parameters_pb2.PushReply()
        copy = None
        with master.changed:
            reply.outcome = master.push(header, gradient, state)
            if header.HasField("next"):
                claim = header.claim
                reply.permit_granted = master.sync and master.take_slot(
                    claim.lease, header.next.wait_s
                )
                copy = master.values.copy() if master.version != claim.base_version else None
            reply.version = master.version
            cut, master.cut_next_answer = master.cut_next_answer, False
        if cut:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        yield from _reply(reply, copy, header.next.precision, master.trainable_nbytes)


def _reply(
    reply: Any, values: np.ndarray[Any, Any] | None, precision: int, trainable_nbytes: int
) -> Iterator[bytes]:
    if values is not None and (half := HALVES.get(precision)):
        trainable = values[:trainable_nbytes].view(np.float32).astype(half).view(np.uint8)
        values = np.concatenate([trainable, values[trainable_nbytes:]])
        reply.precision = precision
    reply.nbytes = 0 if values is None else values.nbytes
    yield reply.SerializeToString()
    if values is not None:
        yield from split(values.data)
