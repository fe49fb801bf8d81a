"""Step permits: the rights to compute the gradients of one synchronous update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edl_master.core.identifiers import TaskKey, Version


@dataclass(frozen=True, slots=True)
class PermitGranted:
    """The lease may compute one gradient from this version."""

    version: Version


@dataclass(frozen=True, slots=True)
class PermitPending:
    """Ask again when ``PushLedger.generation`` is no longer this number."""

    generation: int


@dataclass(frozen=True, slots=True)
class PermitRefused:
    """The caller does not hold the lease (any more), and would wait forever."""


PermitAnswer: TypeAlias = PermitGranted | PermitPending | PermitRefused


class StepPermits:
    """The rights to compute the gradients of one update.

    An update accumulates ``capacity`` gradients. Each is computed under a step permit, and there
    are only as many permits as gradients are still missing: so no gradient is computed in vain.
    Without a capacity each gradient is an update of its own, and every task may compute.

    Attributes:
        capacity: gradients of an update; None if they are not accumulated.
        accumulated: number of gradients that the next update has; always below ``capacity``.
        holders: tasks for which one is being computed.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.accumulated = 0
        self.holders: set[TaskKey] = set()

    def available(self, task: TaskKey) -> bool:
        """Return whether a task holds a permit or could have one."""
        return (
            self.capacity is None
            or task in self.holders
            or len(self.holders) + self.accumulated < self.capacity
        )

    def acquire(self, task: TaskKey) -> bool:
        """Give a permit to a task unless it has one; return whether it may compute."""
        if not self.available(task):
            return False
        if self.capacity is not None:
            self.holders.add(task)
        return True

    def release(self, task: TaskKey) -> bool:
        """Take a task's permit back; return whether it had one."""
        had = task in self.holders
        self.holders.discard(task)
        return had

    def contribute(self, task: TaskKey) -> bool:
        """Add a task's gradient to the update; return whether the update is complete."""
        if self.capacity is None:
            return True
        self.holders.discard(task)
        self.accumulated += 1
        return self.accumulated == self.capacity

    def reset(self) -> None:
        """Begin the next update."""
        self.accumulated = 0
