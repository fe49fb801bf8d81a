"""The training loop of one task: each minibatch in the model exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edl_proto.v1 import parameters_pb2, task_pb2
from edl_worker import failures
from edl_worker.contract import Batch
from edl_worker.core import exchange, prefetch
from edl_worker.core.exchange import Fetch, Move, Outcome
from edl_worker.intake import Assignment, Intake
from edl_worker.link import MasterReplacedError
from edl_worker.metrics import WorkerMetrics
from edl_worker.replica import Replica
from edl_worker.state import WorkerState
from edl_worker.tables.served import Tables, Wanted
from edl_worker.training import Step, Trainer

_OUTCOMES = {
    parameters_pb2.APPLIED: Outcome.APPLIED,
    parameters_pb2.ALREADY_APPLIED: Outcome.ALREADY_APPLIED,
    parameters_pb2.STALE: Outcome.STALE,
    parameters_pb2.REFUSED: Outcome.REFUSED,
    parameters_pb2.OUT_OF_ORDER: Outcome.OUT_OF_ORDER,
    parameters_pb2.INVALID: Outcome.INVALID,
}


class TaskLostError(Exception):
    """The task is not this worker's any more; nothing is left to do for it."""


class OutOfOrderError(Exception):
    """Worker and master disagree about which minibatch is the next one of the task."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What became of a whole task."""

    minibatches: int
    examples: int


@dataclass(slots=True)
class TrainingLoop:
    """Trains tasks, one after the other, with one copy of the parameters.

    Attributes:
        sync: gradients are computed under step slots.
        minibatch_size: of the job.
        prefetch_lead_s: how much work is left when the next lease is asked for.
        tables: embedding tables of the model, if it has any.
        step_s: how long the last step took; None before the first one.
    """

    replica: Replica
    trainer: Trainer
    state: WorkerState
    metrics: WorkerMetrics
    zoo: Path
    sync: bool
    minibatch_size: int
    prefetch_lead_s: float
    tables: Tables | None = None
    step_s: float | None = None
    _following: tuple[Batch, Wanted] | None = None

    def run(self, assignment: Assignment, intake: Intake) -> Trained:
        """Train one task from where its last holder left it.

        Raises:
            TaskLostError: somebody else has it now.
            OutOfOrderError: it has to be handed back.
            EdlError: it failed.
            LeavingError: the worker has to leave; the task stays held.
            MasterReplacedError: what was computed is for a master that is gone.
        """
        lease, batches = assignment.lease, assignment.batches
        assert batches is not None, "a training task has records"
        index = lease.skip_minibatches
        examples = index * self.minibatch_size
        expected = prefetch.expected_minibatches(
            lease.records.stop - lease.records.start, self.minibatch_size
        )
        fetch = exchange.first_fetch(sync=self.sync)
        while True:
            started = time.perf_counter()
            batch = batches.take()
            if batch is None:
                return Trained(index, examples)
            after = batches.peek()
            self.metrics.input_s.observe(time.perf_counter() - started)
            if prefetch.is_due(
                done=index, expected=expected, step_s=self.step_s, lead_s=self.prefetch_lead_s
            ):
                intake.request()
            fetch = self._one(assignment, index, batch, fetch, after)
            index += 1
            examples += batch.size
            self.step_s = time.perf_counter() - started

    def _one(
        self, assignment: Assignment, index: int, batch: Batch, fetch: Fetch, after: Batch | None
    ) -> Fetch:
        """Bring one minibatch into the model; say what to fetch before the next one, ``after``."""
        last = after is None
        wanted = self._wanted(assignment.lease, index, batch)
        while True:
            self._fetch(assignment, fetch, wanted)
            self._check(assignment)
            self.state.phase = task_pb2.COMPUTING
            started = time.perf_counter()
            step = self._compute(assignment.lease, index, batch, wanted)
            following = None
            if after is not None:
                following = self._wanted(assignment.lease, index + 1, after)
            computed = time.perf_counter()
            self.metrics.compute_s.observe(computed - started)
            self._check(assignment)
            self.state.phase = task_pb2.EXCHANGING
            header = parameters_pb2.PushHeader(
                lease=assignment.ref,
                minibatch=index,
                records=batch.size,
                compute_s=computed - started,
                pull=exchange.wants_values(last=last),
            )
            reply = self.replica.push(header, step, wanted, following)
            self.metrics.exchange_s.observe(time.perf_counter() - computed)
            self.metrics.pushed(reply.outcome)
            turn = exchange.after_push(
                _OUTCOMES[reply.outcome],
                last=last,
                sync=self.sync,
                values_came=reply.nbytes > 0,
                slot_granted=reply.slot_granted,
            )
            match turn.move:
                case Move.NEXT:
                    self.metrics.steps.inc()
                    return turn.fetch
                case Move.AGAIN:
                    fetch = turn.fetch
                case Move.DROP:
                    raise TaskLostError
                case Move.HAND_BACK:
                    raise OutOfOrderError
                case Move.FAIL:
                    raise failures.not_finite(
                        assignment.lease,
                        index,
                        self.replica.version,
                        f"the gradient holds an infinity or not a number (loss {step.loss:g})",
                    )

    def _fetch(self, assignment: Assignment, fetch: Fetch, wanted: Wanted | None) -> None:
        match fetch:
            case Fetch.NOTHING if self.replica.has_rows(wanted):
                pass
            case Fetch.NOTHING | Fetch.PARAMETERS:
                self.state.phase = task_pb2.EXCHANGING
                while not self.replica.refresh(wanted):
                    self._check(assignment)
                    self.state.sleep(0.05)  # another worker is about to send the initial values
            case Fetch.SLOT:
                self.state.phase = task_pb2.WAITING
                while not self.replica.acquire_slot(assignment.ref, wanted):
                    self._check(assignment)

    def _check(self, assignment: Assignment) -> None:
        self.state.check()
        if self.state.replaced:
            raise MasterReplacedError("said a heartbeat")
        if self.state.is_lost(assignment.ref):
            raise TaskLostError

    def _wanted(self, lease: task_pb2.Lease, index: int, batch: Batch) -> Wanted | None:
        """The rows that a minibatch needs of embedding tables; found out once."""
        if self.tables is None:
            return None
        if self._following is None or self._following[0] is not batch:
            with self._explained(lease, index, batch):
                self._following = batch, self.tables.wanted(batch, training=True)
        return self._following[1]

    def _compute(
        self, lease: task_pb2.Lease, index: int, batch: Batch, wanted: Wanted | None
    ) -> Step:
        with self._explained(lease, index, batch):
            step = self.trainer.compute(batch, wanted, self.replica.rows(wanted))
        if not step.is_finite:
            raise failures.not_finite(
                lease, index, self.replica.version, f"the loss is {step.loss}"
            )
        return step

    @contextmanager
    def _explained(self, lease: task_pb2.Lease, index: int, batch: Batch) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise failures.explain(
                error,
                doing="the training step raised",
                where=failures.place(lease, index),
                zoo=self.zoo,
                model=self.trainer.model,
                batch=batch,
            ) from error
