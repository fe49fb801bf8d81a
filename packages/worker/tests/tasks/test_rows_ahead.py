"""With overlap, the rows of a push's reply are determined while the push before is in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from linear_engine import Line, LinearSteps

from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core.batch import Batch
from edl_worker.core.exchange import ParameterReply, PullRequest, PushReply, PushRequest, TableRows
from edl_worker.core.job import TrainingSettings, WirePrecision
from edl_worker.core.model_description import TableDescription
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.tasks import Lease, TaskKey, TaskType
from edl_worker.metrics import WorkerMetrics
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.lookahead import Lookahead
from edl_worker.tasks.training_loop import TrainingLoop
from edl_worker.training.replica import ParameterReplica
from edl_worker.training.trainer import GradientTrainer
from edl_worker.transport.parameter_client import ParameterClient

MINIBATCHES = 6
Buffer = Callable[[int], memoryview]


class _Table:
    """One table, of which each minibatch needs the row with its own number."""

    def __init__(self) -> None:
        self.found = [threading.Event() for _ in range(MINIBATCHES)]

    def describe(self) -> list[TableDescription]:
        return [TableDescription("table", 1, "constant", 0.0, 0.0, 1, 1, 0)]

    def find_rows(self, batch: Batch, *, training: bool) -> RowRequest:
        number = int(batch.labels[0])
        self.found[number].set()
        return RowRequest((TableRows(0, 1),), np.array([number]), 4)


class _Plane:
    """A parameter plane that answers a push when the rows that the next one asks for are known."""

    def __init__(self, table: _Table, values: memoryview) -> None:
        self._table = table
        self._values = values
        self.waited_in_vain: list[int] = []
        self.pushed: list[int] = []

    def pull(
        self, request: PullRequest, buffer: Buffer, nbytes: int, ids: Any, rows: Buffer
    ) -> ParameterReply:
        if request.have_version is None:
            buffer(len(self._values))[:] = self._values
        if request.rows:
            rows(4)[:] = bytes(4)
        return ParameterReply(version=1, nbytes=len(self._values), rows_nbytes=4)

    def push(
        self, request: PushRequest, payloads: Any, buffer: Buffer, nbytes: int, rows: Buffer
    ) -> PushReply:
        self.pushed.append(request.minibatch)
        due = min(request.minibatch + 3, MINIBATCHES - 1)
        if not self._table.found[due].wait(60):
            self.waited_in_vain.append(due)
        if request.next_rows:
            rows(4)[:] = bytes(4)
        return PushReply(outcome=PushOutcome.APPLIED, rows_nbytes=4 * len(request.next_rows))


def test_rows_are_determined_while_a_push_is_in_flight() -> None:
    steps, table = LinearSteps(Line()), _Table()
    steps.tables = cast(Any, table)
    plane = _Plane(table, memoryview(steps.pack()).cast("B"))
    settings = TrainingSettings(*(1, False, True, 1, WirePrecision.FLOAT32, 0, "", 1, False, None))
    loop = TrainingLoop(
        state=SharedState(),
        metrics=WorkerMetrics(),
        zoo=Path(),
        minibatch_size=1,
        prefetch_lead_s=-1.0,
        options=settings,
        replica=ParameterReplica(steps, cast(ParameterClient, plane)),
        trainer=GradientTrainer(steps),
        tables=cast(Any, table),
    )
    batches = (
        Batch(np.zeros((1, 4), np.float32), np.full(1, number, np.float32), 1)
        for number in range(MINIBATCHES)
    )
    lease = Lease(TaskKey(TaskType.TRAINING, 0, 0), 1)
    prefetcher = cast(LeasePrefetcher, SimpleNamespace(request=lambda: None))
    result = loop.run(Assignment(lease, Lookahead(batches)), prefetcher)
    assert result.minibatches == MINIBATCHES
    assert plane.pushed == list(range(MINIBATCHES))
    assert not plane.waited_in_vain
