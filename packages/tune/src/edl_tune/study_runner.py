"""Looks at the jobs of a study, and carries out what the study decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from edl.plugins.errors import EdlError, failure_of
from edl_tune.core.study import (
    Effect,
    FinishTrial,
    JobSeen,
    MarkPruned,
    ProposeTrial,
    PruningAdvised,
    ReportValue,
    ResumeJob,
    StartJob,
    StopJob,
    Study,
    StudyRules,
    TimeEnded,
    TrialProposed,
)
from edl_tune.core.trials import SeenJob, Trial, TrialJobPhase, TrialResult
from edl_tune.ports import PAUSE, TrialJobs, TrialStore

POLL_S = 0.5


class StudyDisplay(Protocol):
    """A display of a study while it runs."""

    def show_start(self, trial: Trial, *, resumes: bool) -> None:
        """Show that the job of a trial starts, or continues."""

    def show_end(self, trial: Trial, best: Trial | None) -> None:
        """Show that a trial has ended, and which one is the best now."""


class StudyRunner:
    """Runs a study until it is over.

    Args:
        timeout_s: no trial starts later than this after the beginning, in seconds.
        changed: called when the table of trials has changed.
    """

    def __init__(
        self,
        rules: StudyRules,
        jobs: TrialJobs,
        store: TrialStore,
        display: StudyDisplay,
        *,
        timeout_s: float | None = None,
        changed: Callable[[Study], object] = lambda _: None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.study = Study(rules, store.trials())
        self._jobs = jobs
        self._store = store
        self._display = display
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._changed = changed
        self._sleep = sleep

    def run(self) -> Study:
        """Run the study, and return it when all of its trials are finished.

        Raises:
            EdlError: a job's platform does not answer. The same command continues the study.
        """
        while True:
            self._look()
            self._fill()
            if self.study.is_over:
                return self.study
            self._sleep(POLL_S)

    def stop_jobs(self) -> None:
        """Stop the jobs of all open trials; the next command continues them."""
        for trial in self.study.open:
            self._jobs.stop(trial.number, PAUSE)

    def _look(self) -> None:
        for trial in self.study.open:
            job = self._jobs.look(trial.number)
            self._carry_out(self.study.handle(JobSeen(trial.number, job)))

    def _fill(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.study.handle(TimeEnded())
        while effects := self.study.fill():
            self._carry_out(effects)
            self._look()

    def _carry_out(self, effects: list[Effect]) -> None:
        waiting = list(effects)
        while waiting:
            waiting = [*self._do(waiting.pop(0)), *waiting]

    def _do(self, effect: Effect) -> list[Effect]:
        """Carry out one effect, and return what follows from it."""
        match effect:
            case ProposeTrial():
                return self.study.handle(TrialProposed(self._store.propose()))
            case StartJob(number):
                trial = self._trial(number)
                self._display.show_start(trial, resumes=False)
                return self._try(number, lambda: self._jobs.start(number, trial.values))
            case ResumeJob(number):
                self._display.show_start(self._trial(number), resumes=True)
                return self._try(number, lambda: self._jobs.resume(number))
            case ReportValue(number, evaluation, value):
                advised = self._store.report(number, evaluation, value)
                return self.study.handle(PruningAdvised(number)) if advised else []
            case MarkPruned(number):
                self._store.mark_pruned(number)
            case StopJob(number):
                self._jobs.stop(number, "pruned by edl tune")
            case FinishTrial(number, state, result):
                self._store.finish(number, state, result)
                self._display.show_end(self._trial(number), self.study.best)
                self._changed(self.study)
        return []

    def _try(self, number: int, call: Callable[[], None]) -> list[Effect]:
        """Start or continue a job; one that cannot be started is a failed trial."""
        try:
            call()
        except EdlError as error:
            seen = SeenJob(
                TrialJobPhase.FAILED,
                result=TrialResult(error=error.what),
                failure=failure_of(error),
            )
            return self.study.handle(JobSeen(number, seen))
        return []

    def _trial(self, number: int) -> Trial:
        return next(trial for trial in self.study.trials if trial.number == number)
