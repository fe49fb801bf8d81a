"""What a study needs: jobs that run trials, and a store that keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edl_tune.core.search_space import Value
from edl_tune.core.trials import SeenJob, Trial, TrialResult, TrialState

PAUSE = "edl tune was stopped"
"""The reason with which a command stops jobs that the next one continues."""


class TrialJobs(Protocol):
    """The jobs of a study's trials, by the trials' numbers."""

    def name(self, number: int) -> str:
        """Return the name of the job of a trial."""

    def look(self, number: int) -> SeenJob:
        """Return what is seen of the job of a trial now."""

    def start(self, number: int, values: Mapping[str, Value]) -> None:
        """Start the job of a trial; return when its master answers.

        If the very same job runs already, there MUST NOT be a second one.

        Raises:
            EdlError: it cannot be started.
        """

    def resume(self, number: int) -> None:
        """Continue a job that is over and has not succeeded; harmless if it runs.

        Raises:
            EdlError: it cannot be continued.
        """

    def stop(self, number: int, reason: str) -> None:
        """Ask a job to stop; harmless if it is over, or if its master does not answer.

        A job that was stopped last with the reason ``PAUSE`` MUST be seen as paused.
        """


class TrialStore(Protocol):
    """The trials of a study. What a method has written MUST survive the end of the process."""

    def trials(self) -> Sequence[Trial]:
        """Return all trials by number.

        Trials whose proposal was interrupted MUST be included, with all their values.
        """

    def propose(self) -> Trial:
        """Return a new trial with the next number and the values that the sampler proposes."""

    def report(self, number: int, evaluation: int, value: float) -> bool:
        """Record the objective at an evaluation; return whether the pruner advises to stop."""

    def mark_pruned(self, number: int) -> None:
        """Record that a trial is to be pruned. Harmless when repeated."""

    def finish(self, number: int, state: TrialState, result: TrialResult) -> None:
        """Record the end of a trial. Harmless when repeated."""
