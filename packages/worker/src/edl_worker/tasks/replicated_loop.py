"""The training loop of one task of a replicated job: minibatch by minibatch, in step with peers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from edl_worker.core.batch import Batch
from edl_worker.core.replicas import Claim
from edl_worker.core.tasks import Lease, TaskResult, WorkerPhase
from edl_worker.tasks import task_errors
from edl_worker.tasks.batch_loop import BatchLoop
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.lookahead import SlidingWindow
from edl_worker.training.replica_member import ReplicaMember


@dataclass(slots=True, kw_only=True)
class ReplicatedLoop(BatchLoop):
    """The loop that trains tasks as a member of the replica group."""

    member: ReplicaMember

    def run(self, assignment: Assignment, prefetcher: LeasePrefetcher) -> TaskResult:
        """Train one task from where its last holder left it; raises as ``TrainingLoop.run``."""
        lease = assignment.lease
        assert assignment.batches is not None, "a training task has records"
        reached = lease.skip_minibatches
        batches = SlidingWindow(assignment.batches, reached)
        began = time.perf_counter()
        while True:
            self._join(lease)
            index = self.member.find_position(lease, reached)
            if index > reached:
                now = time.perf_counter()
                self.metrics.steps.inc(index - reached)
                self.step_s, began = (now - began) / (index - reached), now
            batch = self._read(batches, index)
            batches.drop_before(index)
            reached = index
            if batch is None:
                return TaskResult(records=lease.record_count, minibatches=index)
            self._prefetch(prefetcher, lease, index)
            self.state.check_lease(lease.ref)
            self._step(lease, index, batch)

    def pull(self, lease: Lease) -> None:
        """Make the values those of the master's newest version."""
        self.state.phase = WorkerPhase.EXCHANGING
        self.member.use_frozen()

    def _join(self, lease: Lease) -> None:
        """Wait until this worker is a member that can make a step."""
        while not self.member.join():
            self.state.phase = WorkerPhase.WAITING
            self.state.check_lease(lease.ref)
        self.state.phase = WorkerPhase.COMPUTING  # the user's pipeline, which may hang, is next

    def _step(self, lease: Lease, index: int, batch: Batch) -> None:
        self._begin_step()
        started = time.perf_counter()
        with self._explain_errors(lease, index, batch):
            computed = self.member.compute(lease, index, batch)
        if not computed.is_finite:
            what = f"the loss is {computed.loss}"
            if math.isfinite(computed.loss):
                what = "the gradient is not finite"
            raise task_errors.not_finite_error(lease, index, self.member.version, what, [batch])
        between = time.perf_counter()
        self.metrics.compute_s.observe(between - started)
        with self._explain_errors(lease, index, batch):
            self.member.make_step(Claim(lease.ref, index, batch.size, computed.loss), computed)
        self.metrics.exchange_s.observe(time.perf_counter() - between)
