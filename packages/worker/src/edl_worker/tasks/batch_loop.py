"""What loops that train on a task's minibatches have in common."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core import prefetch_policy
from edl_worker.core.batch import Batch
from edl_worker.core.step_engine import Profiler
from edl_worker.core.tasks import Lease, WorkerPhase
from edl_worker.metrics import WorkerMetrics
from edl_worker.tasks import task_errors
from edl_worker.tasks.lease_prefetcher import LeasePrefetcher
from edl_worker.tasks.lookahead import SlidingWindow


@dataclass(slots=True, kw_only=True)
class BatchLoop:
    """A loop that trains tasks, one after the other.

    Attributes:
        zoo: root of the model zoo, for places in error messages.
        minibatch_size: of the job.
        prefetch_lead_s: the next lease is requested when so much work is left.
        profiler: of this worker's steps; None: none are profiled.
        model_inputs: of the model, for error messages.
        step_s: duration of the last step; None before the first one.
    """

    state: SharedState
    metrics: WorkerMetrics
    zoo: Path
    minibatch_size: int
    prefetch_lead_s: float
    profiler: Profiler | None = None
    model_inputs: Any = None
    step_s: float | None = None

    def _prefetch(self, prefetcher: LeasePrefetcher, lease: Lease, done: int) -> None:
        """Request the next lease if it is time for that."""
        if prefetch_policy.is_due(
            done=done,
            expected=prefetch_policy.expected_minibatches(lease.record_count, self.minibatch_size),
            step_s=self.step_s,
            lead_s=self.prefetch_lead_s,
        ):
            prefetcher.request()

    def _read(self, batches: SlidingWindow[Batch], index: int) -> Batch | None:
        """Return a minibatch; None if the task ends before it."""
        started, read = time.perf_counter(), batches.read
        batch = batches.get(index)
        if batches.read > read:
            self.metrics.input_s.observe(time.perf_counter() - started)
        return batch

    def _begin_step(self) -> None:
        if self.profiler is not None:
            self.profiler.begin_step()
        self.state.phase = WorkerPhase.COMPUTING

    @contextmanager
    def _explain_errors(self, lease: Lease, index: int, batch: Batch) -> Iterator[None]:
        """Turn an exception inside into an EdlError that names the minibatch."""
        try:
            yield
        except EdlError as error:
            task_errors.add_place(error, task_errors.place(lease, index))
            raise
        except Exception as error:
            raise task_errors.explain(
                error,
                doing="the training step raised",
                where=task_errors.place(lease, index),
                zoo=self.zoo,
                inputs=self.model_inputs,
                batch=batch,
            ) from error
