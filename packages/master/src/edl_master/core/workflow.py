"""The workflow of a job: its work, and what follows when that is done.

One class per type of job. ``advance`` runs after every event and depends on the present state only,
so a job restored from a snapshot continues without special cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from edl_master.core.effects import (
    Effect,
    FinishOutput,
    FlushGradients,
    FreezeParameters,
    JobPhase,
    LogEvent,
    ReleaseFrozen,
    WriteCheckpoint,
    WriteSnapshot,
)
from edl_master.core.epoch_callbacks import EpochCallbacks
from edl_master.core.evaluation import Evaluations
from edl_master.core.identifiers import TaskType, Version, crosses
from edl_master.core.inference_workflow import Emit, EvaluationWorkflow, PredictionWorkflow
from edl_master.core.ledger import Ledger
from edl_master.core.save_schedule import CheckpointSchedule
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.tasks import Round, TaskPartition
from edl_master.core.training_rounds import TrainingRounds


class Workflow(Protocol):
    """The questions that the job state machine asks of every type of job."""

    main: TaskType
    """Type of the tasks that are the job's main work."""

    @property
    def records_total(self) -> int:
        """The number of records of the main work, over all epochs."""

    @property
    def finishing(self) -> bool:
        """Whether the main work is done, and only what follows from it is left."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""

    @property
    def epoch(self) -> int:
        """Epoch of the oldest task that is not done, from 1; 0 where there are none."""

    @property
    def epochs(self) -> int:
        """The number of epochs in the end; 0 where there are none."""

    @property
    def unopened(self) -> int:
        """Tasks of the main work in rounds that are not open yet."""

    def advance(self) -> None:
        """Do what follows from the state of the ledger."""

    def on_update(self, before: Version, after: Version) -> None:
        """Follow an update of the parameters from one version to another."""

    def last_state(self, end: JobPhase) -> tuple[Effect, ...]:
        """Return the effects that save the state of a job that was stopped, or has failed."""

    def handle_frozen(self, name: str, version: Version) -> bool:
        """Take note of a frozen version; return whether it was requested."""

    @property
    def final_version(self) -> Version | None:
        """The version to export; None before it is frozen."""

    def handle_output(self) -> bool:
        """Take note of the complete output; return whether it was requested."""

    def snapshot(self) -> dict[str, Any]:
        """Return what the next master needs besides the ledger's rounds, as JSON-able values."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved."""

    def make_round(self, number: int) -> Round:
        """Make a round of the main work at its beginning."""

    @property
    def openable(self) -> range:
        """Rounds of the main work that are not open yet, and wait only for tasks to be leased."""

    def open_rounds(self, count: int) -> None:
        """Open the rounds of the main work up to this number."""


class Stage(StrEnum):
    """The stage of a training job."""

    TRAINING = "training"
    FREEZING = "freezing"
    EVALUATING = "evaluating"
    EXPORTING = "exporting"
    FINISHING = "finishing"
    OVER = "over"


FINAL = "final"
"""Name of the frozen version that the last evaluation and the export use."""


class Training:
    """Rounds of training tasks with evaluations, then one final version for all that follows."""

    main = TaskType.TRAINING

    def __init__(
        self,
        settings: JobSettings,
        rounds: TrainingRounds,
        ledger: Ledger,
        evaluations: Evaluations,
        callbacks: EpochCallbacks,
        checkpoints: CheckpointSchedule,
        emit: Emit,
    ) -> None:
        self._callbacks = callbacks
        self._checkpoints = checkpoints
        self._settings = settings
        self._rounds = rounds
        self._ledger = ledger
        self._evaluations = evaluations
        self._emit = emit
        self._opened = 0
        self._ended = 0
        self._stage = Stage.TRAINING
        self._final: Version | None = None

    @property
    def records_total(self) -> int:
        return self._rounds.count_records(self._ended if self._callbacks.stopped else None)

    @property
    def epochs(self) -> int:
        return self._last or 0

    @property
    def _last(self) -> int | None:
        """The number of rounds in the end; None: that is not known yet."""
        return self._ended if self._callbacks.stopped else self._rounds.count

    @property
    def _ready(self) -> int:
        """The number of rounds that may be opened."""
        return self._ended if self._callbacks.stopped else self._rounds.ready

    @property
    def finishing(self) -> bool:
        return self._stage is not Stage.TRAINING

    @property
    def over(self) -> bool:
        return self._stage is Stage.OVER

    @property
    def epoch(self) -> int:
        return self._ended + 1 if self._last is None else min(self._ended + 1, self._last)

    @property
    def unopened(self) -> int:
        return 0 if self._callbacks.stopped else self._rounds.count_tasks(self._opened)

    def advance(self) -> None:
        if self._stage is Stage.TRAINING:
            self._train()
        self._evaluations.advance()
        if self._stage is Stage.EVALUATING and self._evaluations.idle:
            if self._evaluations.last_version != self._final:
                self._evaluations.start_on(FINAL, self._final)
            else:
                self._export()
        if self._stage is Stage.EXPORTING and not self._ledger.is_open(TaskType.EXPORT, 0):
            self._stage = Stage.FINISHING
            self._emit(FinishOutput())

    def _train(self) -> None:
        if self._settings.export_only:
            self._ledger.trains = False
            self._freeze()
            return
        self._end_rounds()
        if self._evaluations.drained:
            self._callbacks.advance(self._ended)
        self._open_ready()
        if self._ended == self._last and not self._callbacks.due(self._ended):
            self._finish_training()

    def _end_rounds(self) -> None:
        """End rounds in their order, whatever the order in which their last tasks are done."""
        while self._ended < self._opened:
            self._ledger.close_round(self.main, self._ended)
            if self._ledger.is_open(self.main, self._ended):
                break
            self._ended += 1
            self._rounds.forget(self._ended)
            word, last = self._rounds.word, self._rounds.count
            line = f"{word} {self._ended}{f' of {last}' if last else ''} is complete."
            self._emit(LogEvent(f"{word}Ended", line, facts={word.lower(): str(self._ended)}))
            if self._ended == last and not self._callbacks.wanted:
                return
            if self._settings.epoch_barrier:
                self._emit(FlushGradients())
            if self._settings.evaluation_steps == 0 or self._callbacks.wanted:
                self._evaluations.trigger()

    def _open_ready(self) -> None:
        while self._opened < self._ready and not self._callbacks.due(self._opened):
            last = self._opened - 1
            if self._settings.epoch_barrier or self._callbacks.wanted:
                if self._ended < self._opened:
                    return
            elif self._ledger.has_leasable(self.main, last):
                return
            self.open_rounds(self._opened + 1)

    @property
    def openable(self) -> range:
        waits = self._settings.epoch_barrier or self._callbacks.wanted
        return range(self._opened, self._opened if waits else self._ready)

    def open_rounds(self, count: int) -> None:
        while self._opened < count:
            self._ledger.open_round(self.make_round(self._opened))
            self._opened += 1

    def _finish_training(self) -> None:
        self._evaluations.cancel_pending()
        self._emit(FlushGradients())
        self._emit(WriteCheckpoint())
        if self._evaluations.possible or self._settings.export:
            # Whatever fails from here on, no training is lost.
            self._emit(WriteSnapshot())
            self._freeze()
        else:
            self._export()

    def _freeze(self) -> None:
        self._stage = Stage.FREEZING
        self._emit(FreezeParameters(FINAL))

    def _export(self) -> None:
        if self._settings.export:
            self._stage = Stage.EXPORTING
            self._ledger.open_round(Round(TaskType.EXPORT, 0, None))
        else:
            self._end()

    def _end(self) -> None:
        self._stage = Stage.OVER
        if self._final is not None:
            self._emit(ReleaseFrozen(FINAL))

    def on_update(self, before: Version, after: Version) -> None:
        if self._stage is not Stage.TRAINING:
            return
        if crosses(self._settings.evaluation_steps, before, after):
            self._evaluations.trigger()
        if self._checkpoints.is_due(before, after):
            self._emit(WriteCheckpoint())

    def last_state(self, end: JobPhase) -> tuple[Effect, ...]:
        if self._settings.export_only or not self._opened:
            return ()
        if end is JobPhase.FAILED:
            return (WriteSnapshot(),)
        return WriteCheckpoint(), WriteSnapshot()

    def handle_frozen(self, name: str, version: Version) -> bool:
        if name != FINAL or self._stage is not Stage.FREEZING:
            return self._evaluations.handle_frozen(name, version)
        self._final = version
        if self._evaluations.possible:
            self._stage = Stage.EVALUATING
        else:
            self._export()
        return True

    @property
    def final_version(self) -> Version | None:
        return self._final

    def handle_output(self) -> bool:
        if self._stage is not Stage.FINISHING:
            return False
        self._emit(LogEvent("ModelExported", "The trained model is written."))
        self._end()
        return True

    def snapshot(self) -> dict[str, Any]:
        return {
            "opened": self._opened,
            "ended": self._ended,
            **self._rounds.snapshot(),
            "rounds": self._rounds.count,
            "callbacks": self._callbacks.snapshot(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._opened = saved["opened"]
        self._ended = saved["ended"]
        self._callbacks.restore(saved["callbacks"])
        self._rounds.restore(saved)
        before, now = saved.get("rounds"), self._rounds.count
        if before is not None and now is not None and before < min(now, self._callbacks.called):
            self._callbacks.begin_again()  # the last call has ended the training

    def make_round(self, number: int) -> Round:
        return Round(self.main, number, *self._rounds.divide(number))


def build_workflow(
    settings: JobSettings,
    partition: TaskPartition,
    rounds: TrainingRounds,
    ledger: Ledger,
    evaluations: Evaluations,
    callbacks: EpochCallbacks,
    checkpoints: CheckpointSchedule,
    emit: Emit,
) -> Workflow:
    """Make the workflow of a job of this type."""
    match settings.type:
        case JobType.TRAIN:
            return Training(settings, rounds, ledger, evaluations, callbacks, checkpoints, emit)
        case JobType.EVALUATE:
            return EvaluationWorkflow(partition, ledger, evaluations, emit)
        case JobType.PREDICT:
            return PredictionWorkflow(partition, ledger, emit)
