"""The state machine of a study: which trial to propose, start, prune and finish.

Each effect may be carried out twice, if the command is killed before the store knows of it: what
follows from the store and the jobs alone is decided anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from edl_tune.core.objective import Objective
from edl_tune.core.trials import (
    SeenJob,
    Trial,
    TrialJobPhase,
    TrialResult,
    TrialState,
    is_number,
)

MAX_RESUMPTIONS = 3
"""How often one command continues a job that is lost."""

MAX_FAILURES = 3
"""Trials that fail one after the other until the study ends: more would fail as well."""


@dataclass(frozen=True, slots=True)
class StudyRules:
    """The limits of a study.

    Attributes:
        trials: number of trials.
        parallel: trials that run at the same time.
    """

    objective: Objective
    trials: int
    parallel: int = 1


# --- events --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialProposed:
    """The store has a new trial."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The runner has looked at the job of a trial."""

    number: int
    job: SeenJob


@dataclass(frozen=True, slots=True)
class PruningAdvised:
    """The pruner advises to stop a trial."""

    number: int


@dataclass(frozen=True, slots=True)
class TimeEnded:
    """No further trials may start."""


Event: TypeAlias = TrialProposed | JobSeen | PruningAdvised | TimeEnded

# --- effects -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProposeTrial:
    """Have the sampler propose a trial: answered by ``TrialProposed``."""


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start the job of a trial, unless it runs."""

    number: int


@dataclass(frozen=True, slots=True)
class ResumeJob:
    """Continue the job of a trial from its newest state."""

    number: int


@dataclass(frozen=True, slots=True)
class ReportValue:
    """Report the objective at an evaluation; the pruner may answer with ``PruningAdvised``."""

    number: int
    evaluation: int
    value: float


@dataclass(frozen=True, slots=True)
class MarkPruned:
    """Record that a trial is to be pruned, before its job is stopped."""

    number: int


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stop the job of a trial that is pruned."""

    number: int


@dataclass(frozen=True, slots=True)
class FinishTrial:
    """Record the end of a trial."""

    number: int
    state: TrialState
    result: TrialResult


Effect: TypeAlias = (
    ProposeTrial | StartJob | ResumeJob | ReportValue | MarkPruned | StopJob | FinishTrial
)


class Study:
    """The state of a study.

    Args:
        trials: all that the store has.

    Attributes:
        failure: of the trials that all failed; None unless the study ends because of them.
    """

    def __init__(self, rules: StudyRules, trials: Iterable[Trial] = ()) -> None:
        self.rules = rules
        self.failure: Any = None
        self._trials = {trial.number: trial for trial in trials}
        self._waits = False  # for a proposal
        self._ends = False  # no further trial is proposed
        self._started: set[int] = set()  # by this command, or seen alive by it
        self._resumptions: dict[int, int] = {}
        self._failures: list[Any] = []

    @property
    def trials(self) -> list[Trial]:
        """All trials by number."""
        return [self._trials[number] for number in sorted(self._trials)]

    @property
    def open(self) -> list[Trial]:
        """The trials that are not finished."""
        return [trial for trial in self.trials if not trial.state.is_final]

    @property
    def best(self) -> Trial | None:
        """The best trial that is complete, the first of equal ones; None if none is."""
        best: Trial | None = None
        for trial in self.trials:
            value = trial.result.objective
            if trial.state is not TrialState.COMPLETE or value is None:
                continue
            so_far = None if best is None else best.result.objective
            if self.rules.objective.is_better(value, so_far):
                best = trial
        return best

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        is_full = self._ends or len(self._trials) >= self.rules.trials
        return is_full and not self.open and not self._waits

    def handle(self, event: Event) -> list[Effect]:
        """Take an event, and return what follows from it, in order."""
        match event:
            case TrialProposed(trial):
                self._waits = False
                self._trials[trial.number] = trial
                return []
            case JobSeen(number, job):
                return self._see(self._trials[number], job)
            case PruningAdvised(number):
                return self._prune(self._trials[number])
            case TimeEnded():
                self._ends = True
                return []

    def fill(self) -> list[Effect]:
        """Return the proposal of the next trial, if there is room for one."""
        is_full = self._ends or len(self._trials) >= self.rules.trials
        if is_full or self._waits or len(self.open) >= self.rules.parallel:
            return []
        self._waits = True
        return [ProposeTrial()]

    # --- trials ------------------------------------------------------------------------------

    def _see(self, trial: Trial, job: SeenJob) -> list[Effect]:
        if trial.state.is_final:
            return []
        if trial.is_pruned:
            return self._see_pruned(trial, job)
        match job.phase:
            case TrialJobPhase.MISSING if trial.number in self._started:
                return [self._finish(trial, TrialState.STOPPED, job, "its job was deleted")]
            case TrialJobPhase.MISSING:
                self._started.add(trial.number)
                return [StartJob(trial.number)]
            case TrialJobPhase.ALIVE:
                self._started.add(trial.number)
                return self._report(trial, job)
            case TrialJobPhase.SUCCEEDED:
                return [*self._report(trial, job), self._complete(trial, job)]
            case TrialJobPhase.FAILED:
                return [*self._report(trial, job), self._fail(trial, job)]
            case TrialJobPhase.STOPPED if not job.is_paused:
                return [self._finish(trial, TrialState.STOPPED, job, "its job was stopped")]
            case TrialJobPhase.STOPPED | TrialJobPhase.LOST:
                return self._resume(trial, job)

    def _see_pruned(self, trial: Trial, job: SeenJob) -> list[Effect]:
        if job.phase is TrialJobPhase.ALIVE:
            return [StopJob(trial.number)]
        return [self._finish(trial, TrialState.PRUNED, job)]

    def _report(self, trial: Trial, job: SeenJob) -> list[Effect]:
        """Return the reports of evaluations that the store does not have."""
        metric = self.rules.objective.metric
        new = {
            number: metrics[metric]
            for number, metrics in sorted(job.evaluations.items())
            if number not in trial.reported and metric in metrics
        }
        self._trials[trial.number] = replace(trial, reported={**trial.reported, **new})
        return [ReportValue(trial.number, number, value) for number, value in new.items()]

    def _prune(self, trial: Trial) -> list[Effect]:
        if trial.state.is_final or trial.is_pruned:
            return []
        self._trials[trial.number] = replace(trial, is_pruned=True)
        return [MarkPruned(trial.number), StopJob(trial.number)]

    def _resume(self, trial: Trial, job: SeenJob) -> list[Effect]:
        number = trial.number
        self._resumptions[number] = self._resumptions.get(number, 0) + 1
        if self._resumptions[number] > MAX_RESUMPTIONS:
            return [self._fail(trial, job)]
        self._started.add(number)
        return [ResumeJob(number)]

    def _complete(self, trial: Trial, job: SeenJob) -> Effect:
        value = job.result.metrics.get(self.rules.objective.metric)
        if value is None or not is_number(value):
            name = self.rules.objective.name
            error = f"{name} is {value}" if value is not None else f"it has no {name}"
            return self._finish(trial, TrialState.FAILED, job, error)
        self._failures.clear()
        return self._finish(trial, TrialState.COMPLETE, job, objective=value)

    def _fail(self, trial: Trial, job: SeenJob) -> Effect:
        if not job.is_of_values:
            self._failures.append(job.failure)
        if len(self._failures) >= MAX_FAILURES:
            self.failure = self._failures[-1]
            self._ends = True
        return self._finish(trial, TrialState.FAILED, job, job.result.error or "its job failed")

    def _finish(
        self,
        trial: Trial,
        state: TrialState,
        job: SeenJob,
        error: str = "",
        objective: float | None = None,
    ) -> Effect:
        trial = self._trials[trial.number]
        if objective is None and trial.reported:
            objective = trial.reported[max(trial.reported)]
            objective = objective if is_number(objective) else None
        result = replace(job.result, objective=objective, error=error)
        self._trials[trial.number] = replace(trial, state=state, result=result)
        return FinishTrial(trial.number, state, result)
