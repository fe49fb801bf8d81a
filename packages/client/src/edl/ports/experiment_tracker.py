"""The port to experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edl.core.tracking import KerasModel, Measurement, RunEnd


class TrackerUnavailable(Exception):
    """The tracker did not answer, or refused. A later attempt may succeed."""


class ExperimentTracker(Protocol):
    """One run of a tracker. Calls MUST be harmless when repeated, by any process.

    Every method raises ``TrackerUnavailable``.
    """

    def open(self, job: str, submitted_at: str, started_at_s: float) -> str:
        """Find the run of a job, or create it; say that it runs. Called before anything else.

        Args:
            submitted_at: with the name, identifies the job.
            started_at_s: when the job started, in seconds since the epoch.

        Returns:
            Where a person sees the run.
        """

    def log_parameters(self, parameters: Mapping[str, str]) -> None:
        """Log parameters. Those that the run has already MUST stay as they are."""

    def last_steps(self) -> Mapping[str, int]:
        """Return the last step of each metric that the run has."""

    def log_metrics(self, measurements: Sequence[Measurement]) -> None:
        """Log metrics; the same measurement twice MUST count once."""

    def has_model(self, version: int) -> bool:
        """Return whether the run has the model of this parameter version."""

    def log_model(self, model: KerasModel) -> None:
        """Log a model."""

    def end(self, end: RunEnd, at_s: float) -> None:
        """Say how the run ended; ``at_s`` in seconds since the epoch."""
