"""The workflows of jobs on a trained model: one round of evaluation or prediction tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl_master.core.effects import Effect, FinishOutput, JobPhase, WriteSnapshot
from edl_master.core.evaluation import Evaluations
from edl_master.core.identifiers import TaskType, Version
from edl_master.core.ledger import Ledger
from edl_master.core.tasks import Round, TaskPartition

Emit = Callable[[Effect], None]


class _InferenceWorkflow:
    """Common parts of jobs on a trained model: no versions, no epochs, one round."""

    main: TaskType
    epoch = 0
    epochs = 0
    final_version = None
    openable = range(0)

    def __init__(self, partition: TaskPartition, ledger: Ledger, emit: Emit) -> None:
        self._partition = partition
        self._ledger = ledger
        self._emit = emit
        self._opened = False

    @property
    def records_total(self) -> int:
        return self._partition.records

    @property
    def unopened(self) -> int:
        return 0 if self._opened else self._partition.count

    def on_update(self, before: Version, after: Version) -> None:
        pass

    def last_state(self, end: JobPhase) -> tuple[Effect, ...]:
        return (WriteSnapshot(),)

    def handle_frozen(self, name: str, version: Version) -> bool:
        return False

    def handle_output(self) -> bool:
        return False

    def make_round(self, number: int) -> Round:
        return Round(self.main, number, self._partition)

    def open_rounds(self, count: int) -> None:
        pass

    def snapshot(self) -> dict[str, Any]:
        return {"opened": self._opened}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._opened = saved["opened"]


class EvaluationWorkflow(_InferenceWorkflow):
    """One evaluation of a trained model over the main data."""

    main = TaskType.EVALUATION

    def __init__(
        self, partition: TaskPartition, ledger: Ledger, evaluations: Evaluations, emit: Emit
    ) -> None:
        super().__init__(partition, ledger, emit)
        self._evaluations = evaluations

    @property
    def finishing(self) -> bool:
        return self._opened and not self._ledger.is_open(self.main, 0)

    @property
    def over(self) -> bool:
        return self._evaluations.ended > 0

    def advance(self) -> None:
        if not self._opened:
            self._opened = True
            self._evaluations.start_on("", None)
        self._evaluations.advance()


class PredictionWorkflow(_InferenceWorkflow):
    """Prediction tasks over the main data; then their parts are joined."""

    main = TaskType.PREDICTION

    def __init__(self, partition: TaskPartition, ledger: Ledger, emit: Emit) -> None:
        super().__init__(partition, ledger, emit)
        self._joining = False
        self._joined = False

    @property
    def finishing(self) -> bool:
        return self._joining

    @property
    def over(self) -> bool:
        return self._joined

    def advance(self) -> None:
        if not self._opened:
            self._opened = True
            self._ledger.open_round(self.make_round(0))
        if not self._joining and not self._ledger.is_open(self.main, 0):
            self._joining = True
            # Before the output can be there: then no task of it will be done again.
            self._emit(WriteSnapshot())
            self._emit(FinishOutput())

    def handle_output(self) -> bool:
        self._joined = self._joining
        return self._joined
