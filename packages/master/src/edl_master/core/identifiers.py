"""The small value types that every component of the core shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

WorkerId = NewType("WorkerId", int)
"""Logical number of a worker, from 0; a process that replaces an ended one keeps it."""

InstanceId = NewType("InstanceId", str)
"""Identity of the process or pod that is a worker right now: host:pid:start time."""

Token = NewType("Token", int)
"""Fencing token of a lease; grows with every lease that a job grants.

A restored job continues counting from its snapshot. Messages to the lost incarnation are refused
by their incarnation before they reach the core.
"""

Version = NewType("Version", int)
"""Parameter version: how many updates have been applied since the initial values."""


CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
"""Storages of a job's position, as commands to parameter servers name them."""


class TaskType(StrEnum):
    """The kind of work that a task asks of a worker."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    EVALUATION_SUMMARY = "evaluation_summary"
    PREDICTION = "prediction"
    EXPORT = "export"
    CALLBACKS = "callbacks"


class WorkerState(StrEnum):
    """The stage of a worker's current instance.

    ``WORKING`` is ``READY`` while it holds a task, and appears in views only.
    """

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    WORKING = "working"
    LEAVING = "leaving"
    LOST = "lost"
    GONE = "gone"


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """Identity of a task: the same work has the same key however often it is leased.

    ``round`` is the epoch of a training task and the number of the evaluation for an
    evaluation task; ``number`` counts the tasks of that round in the order of the data.
    """

    type: TaskType
    round: int
    number: int

    def __str__(self) -> str:
        return f"{self.type}/{self.round}/{self.number}"


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as its holder names it."""

    task: TaskKey
    token: Token


class AppliedCount(NamedTuple):
    """The part of a task that is in the model, as the parameters count it."""

    minibatches: int = 0
    records: int = 0
    """Examples, where the input function drops or multiplies records."""


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """The counts of a snapshot's parameters, which may be minibatches ahead of its ledger."""

    version: Version = Version(0)
    applied: Mapping[TaskKey, AppliedCount] = field(default_factory=dict)
    """Of each open task."""


NO_COUNTS = ParameterCounts()


def crosses(every: int, before: Version, after: Version) -> bool:
    """Return whether a multiple of ``every`` lies beyond ``before`` and not beyond ``after``."""
    return every > 0 and after // every > before // every
