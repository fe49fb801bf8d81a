"""Trials of a study, and what is seen of their jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from edl_tune.core.search_space import Value


class TrialState(StrEnum):
    """How far a trial is; all but ``OPEN`` are final."""

    OPEN = "open"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"
    """Someone has stopped or deleted its job."""

    @property
    def is_final(self) -> bool:
        return self is not TrialState.OPEN


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The numbers of a trial's job, and why it has failed.

    Attributes:
        objective: the value at the end; None without one.
        metrics: all values of the last evaluation.
        records: that the job has trained, over all epochs.
        seconds: from the start of the job to its end.
        error: one sentence; empty unless the job failed or was stopped.
    """

    objective: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    epochs: int = 0
    records: int = 0
    steps: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial, as the store keeps it.

    Attributes:
        number: from 0; never used again.
        values: of the hyperparameters, by name.
        reported: the objective at each evaluation, by the evaluation's number from 1.
        is_pruned: it was decided to prune it; its job may run still.
    """

    number: int
    values: Mapping[str, Value]
    state: TrialState = TrialState.OPEN
    reported: Mapping[int, float] = field(default_factory=dict)
    is_pruned: bool = False
    result: TrialResult = field(default_factory=TrialResult)


class TrialJobPhase(StrEnum):
    """What is seen of the job of a trial."""

    MISSING = "missing"
    """There is none, or its submission was interrupted."""
    ALIVE = "alive"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    """Its processes are gone, as after the machine was restarted; it can go on."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One look at the job of a trial.

    Attributes:
        evaluations: the metrics of each evaluation so far, by its number from 1.
        result: the numbers so far, without the objective.
        failure: why it has failed: the sentence, the place and the remedy.
        is_paused: a command has stopped the job to continue it later.
        is_of_values: the failure may come from the trial's values, as a loss that is no number.
    """

    phase: TrialJobPhase
    evaluations: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    result: TrialResult = field(default_factory=TrialResult)
    failure: Any = None
    is_of_values: bool = False
    is_paused: bool = False


def is_number(value: float | None) -> bool:
    """Return whether a value can be compared: it is there and finite."""
    return value is not None and math.isfinite(value)
