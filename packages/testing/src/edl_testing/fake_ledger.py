"""The state of a fake master: tasks, parameters in numpy, and the calls of workers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edl_proto import tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_replicas import FakeReplicas


@dataclass(slots=True)
class FakeTask:
    """A task and its progress."""

    lease: task_pb2.Lease
    applied: int = 0
    token: int = 0  # of the present lease; 0: not leased
    granted: int = 0  # token of the last lease, whose steps may still have to be counted
    worker: int = -1  # that has, or had it
    done: bool = False
    complete: task_pb2.CompleteRequest | None = None  # of a replicated job: before the steps count
    failures: list[task_pb2.FailRequest] = field(default_factory=list)

    @property
    def name(self) -> tuple[int, int, int]:
        key = self.lease.task
        return key.type, key.round, key.number


@dataclass(slots=True)
class ReceivedCalls:
    """The calls of workers, in order."""

    registered: list[task_pb2.RegisterRequest] = field(default_factory=list)
    ready: list[task_pb2.ReadyRequest] = field(default_factory=list)
    pushes: list[tuple[parameters_pb2.PushHeader, int]] = field(default_factory=list)
    pulls: list[parameters_pb2.PullHeader] = field(default_factory=list)
    counted: list[tuple[int, int]] = field(default_factory=list)  # task and number of minibatches
    returned: list[task_pb2.ReturnRequest] = field(default_factory=list)
    failed: list[task_pb2.FailRequest] = field(default_factory=list)
    heartbeats: list[task_pb2.HeartbeatRequest] = field(default_factory=list)
    profiles: list[task_pb2.WriteProfileRequest] = field(default_factory=list)

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


PushHook = Callable[[Any, parameters_pb2.PushHeader], int | None]
"""From the master and a push to its outcome; None: the ledger decides."""


class FakeLedger:
    """The tasks and parameters of one job.

    Args:
        job: sent to workers that register.
        stages: tasks by stage; leases without token.
        rate: learning rate of SGD.
        grads_to_wait: gradients per update when the job is synchronous.

    Attributes:
        on_push: called under the lock before a push is judged; its outcome, if any, is the verdict.
        workers_wanted: how many workers must be ready before the first task is leased, and get one
            before any gets a second one.
        leases_left: how many leases there are at most from now on; None: any number.
        drop_next_reply: the next push takes effect, but its reply is lost.
        lost_workers: get no lease; a request of one that is dead or frozen may still be open.
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
        self.stages = [[FakeTask(lease) for lease in stage] for stage in stages]
        self.received = ReceivedCalls()
        self.on_push: PushHook | None = None
        self.drop_next_reply = False
        self.workers_wanted = 1
        self.leased_to: set[int] = set()
        self.leases_left: int | None = None
        self.send_stacks = False
        self.leave_reason = ""
        self.lost: list[task_pb2.LeaseRef] = []
        self.lost_workers: set[int] = set()
        self.changed = threading.Condition()
        self.variables: list[task_pb2.Variable] = []
        self.values = np.zeros(0, np.uint8)
        self.version = 0
        self.initialized = False
        self.frozen: dict[str, tuple[int, np.ndarray[Any, Any]]] = {}
        self.entered = 0
        self.permits: set[int] = set()
        self.accumulated: list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.incarnation = "first"
        self.next_token = 1
        self.replicas = FakeReplicas(self)

    # --- tasks -----------------------------------------------------------------------------

    def all_tasks(self) -> Iterator[FakeTask]:
        return itertools.chain.from_iterable(self.stages)

    def stage(self) -> int | None:
        """Return the first stage that is not done; entering it freezes the parameters."""
        for number, tasks in enumerate(self.stages):
            if not all(task.done for task in tasks):
                if number >= self.entered:
                    self.entered = number + 1
                    version = self.replicas.counted if self.replicated else self.version
                    self.frozen[f"stage-{number}"] = version, self.values.copy()
                return number
        return None

    def find_lease(self, ref: task_pb2.LeaseRef) -> FakeTask:
        for task in self.all_tasks():
            if task.lease.task == ref.task and task.token == ref.token and ref.token:
                return task
        raise EdlError(ErrorCode.STALE_LEASE, f"lease {ref.token} is not held")

    def revoke(self, ref: task_pb2.LeaseRef) -> None:
        """Take a task away from the worker that holds it."""
        with self.changed:
            with contextlib.suppress(EdlError):
                self.find_lease(ref).token = 0
            self.permits.discard(ref.token)
            self.changed.notify_all()

    def lose(self, worker: int) -> None:
        """Take all tasks away from a worker that is dead, and give it no other."""
        with self.changed:
            self.lost_workers.add(worker)
            for task in self.all_tasks():
                if task.worker == worker:
                    self.permits.discard(task.token)
                    task.token = 0
            self.changed.notify_all()

    def next_lease(self, worker: int) -> task_pb2.Lease | None:
        """Lease the next task of the stage, if one is free."""
        number = self.stage()
        if number is None or not self._has_values(number) or self.leases_left == 0:
            return None
        if worker in self.lost_workers:
            return None
        for task in self.stages[number]:
            if task.done or task.token or len(task.failures) >= 3:
                continue
            if task.granted and self.replicas.is_undecided(task.worker):
                continue
            task.token = task.granted = self.next_token
            task.worker = worker
            self.next_token += 1
            if self.leases_left is not None:
                self.leases_left -= 1
            lease = task_pb2.Lease()
            lease.CopyFrom(task.lease)
            lease.token = task.token
            lease.skip_minibatches = task.applied
            if lease.task.type in (task_pb2.EVALUATION, task_pb2.EVALUATION_SUMMARY):
                trains = self.job.type == job_pb2.TRAIN
                frozen = f"stage-{number - self._summaries(number)}" if trains else ""
                lease.frozen = lease.frozen or frozen
            if lease.task.type == task_pb2.EXPORT:
                lease.frozen = f"stage-{number}"
                lease.export.parameter_version = self.version
            if lease.task.type == task_pb2.EVALUATION_SUMMARY:
                lease.metric_states.extend(self.merge_metric_states(self.stages[number - 1]))
            return lease
        return None

    def _has_values(self, number: int) -> bool:
        """Whether the frozen values are here; those of a replicated job are with its workers."""
        if not self.replicated or self.frozen[f"stage-{number}"][0] <= self.replicas.stored:
            return True
        if not self.replicas.next and not self.replicas.is_ending:
            self.replicas.end(save=True)
        return False

    def _summaries(self, number: int) -> int:
        types = {task.lease.task.type for task in self.stages[number]}
        return 1 if task_pb2.EVALUATION_SUMMARY in types else 0

    def merge_metric_states(self, tasks: list[FakeTask]) -> list[task_pb2.MetricState]:
        """Add up the metric states of completed tasks."""
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
        """Return the values of all variables."""
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
    ) -> Any:
        """Judge and apply one push under the lock, as the ledger says."""
        outcome = self.on_push(self, header) if self.on_push else None
        if outcome is None:
            outcome = self._judge(header)
        if outcome == parameters_pb2.APPLIED:
            task = self.find_lease(header.claim.lease)
            if self.sync:
                self.permits.discard(header.claim.lease.token)
                self.accumulated.append((header.claim.records, gradient, state))
                if len(self.accumulated) == self.grads_to_wait:
                    self.apply_accumulated()
            elif self.local:
                self._update(-gradient / self.rate, state)
                self.version += header.claim.minibatches - 1
            else:
                self._update(gradient, state)
            task.applied += header.claim.minibatches
        self.received.pushes.append((header, outcome))
        self.changed.notify_all()
        return outcome

    @property
    def local(self) -> bool:
        """Whether workers push the difference that their own updates have made."""
        return bool(self.job.training.local_steps > 1)

    @property
    def replicated(self) -> bool:
        """Whether workers hold the values, and train in step."""
        return bool(self.job.training.update == job_pb2.REPLICATED)

    @property
    def sync(self) -> bool:
        return bool(self.job.training.update == job_pb2.SYNC)

    def _judge(self, header: parameters_pb2.PushHeader) -> int:
        try:
            task = self.find_lease(header.claim.lease)
        except EdlError:
            return parameters_pb2.REFUSED
        if header.claim.minibatch + header.claim.minibatches <= task.applied:
            return parameters_pb2.ALREADY_APPLIED
        if header.claim.minibatch != task.applied:
            return parameters_pb2.OUT_OF_ORDER
        without_permit = self.sync and header.claim.lease.token not in self.permits
        if header.claim.base_version > self.version or without_permit:
            return parameters_pb2.STALE
        if self.sync and header.claim.base_version != self.version:
            return parameters_pb2.STALE
        return parameters_pb2.APPLIED

    def apply_accumulated(self) -> None:
        total = sum(records for records, _, _ in self.accumulated)
        parts = [(records / total, g, s) for records, g, s in self.accumulated]
        self.accumulated.clear()
        self._update(
            np.sum([weight * g for weight, g, _ in parts], axis=0),
            np.sum([weight * s for weight, _, s in parts], axis=0),
        )

    def _update(self, gradient: np.ndarray[Any, Any], state: np.ndarray[Any, Any]) -> None:
        """Apply SGD; everything is float32 here."""
        values = self.values.view(np.float32)
        values[: gradient.size] -= np.float32(self.rate) * gradient.astype(np.float32)
        if state.size:
            values[gradient.size :] += state.astype(np.float32)
        self.version += 1

    def take_permit(self, ref: task_pb2.LeaseRef, wait_s: float) -> bool:
        """Wait for a step permit; a job that is not synchronous needs none."""
        if not self.sync:
            return True

        def free() -> bool:
            if ref.token not in self.permits and (
                len(self.permits) + len(self.accumulated) < self.grads_to_wait
            ):
                with contextlib.suppress(EdlError):
                    self.find_lease(ref)
                    self.permits.add(ref.token)
            return ref.token in self.permits

        return self.changed.wait_for(free, wait_s)
