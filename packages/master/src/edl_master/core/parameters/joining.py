"""Synchronous updates: rights to contribute to one, and the gradients accumulated for it."""

from __future__ import annotations

from edl_master.core.identifiers import TaskKey
from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.layout import Arenas, Layout
from edl_master.core.parameters.modes import Reduction
from edl_master.core.parameters.payload import zeros


class StepPermits:
    """The rights to compute the gradients of one update.

    An update joins ``capacity`` gradients. Each is computed under a step permit, and there are only
    as many as gradients are still missing: so no gradient is ever computed in vain. Without a
    capacity, each gradient is an update of its own, and whoever asks may compute.

    Attributes:
        capacity: gradients of an update; None if they are not joined.
        filled: how many of them are there; always less than ``capacity``.
        holders: tasks for which one is being computed.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.filled = 0
        self.holders: set[TaskKey] = set()

    def take(self, task: TaskKey) -> bool:
        """Give a step permit to a task unless it has one; say whether it may compute."""
        if self.capacity is None or task in self.holders:
            return True
        if len(self.holders) + self.filled == self.capacity:
            return False
        self.holders.add(task)
        return True

    def give_back(self, task: TaskKey) -> bool:
        """Take a task's step permit away; say whether it had one."""
        had = task in self.holders
        self.holders.discard(task)
        return had

    def fill(self, task: TaskKey) -> bool:
        """A task's gradient is there; say whether none is missing any more."""
        if self.capacity is None:
            return True
        self.holders.discard(task)
        self.filled += 1
        return self.filled == self.capacity

    def next_version(self) -> None:
        """The update has been made."""
        self.filled = 0


class GradientAccumulator:
    """Gradients and state deltas of one version, joined as they come.

    Attributes:
        records: records behind the gradients so far.
        gradient: sum of the gradients, each times its records with a mean reduction.
        state: sum of the state deltas, each times its records.
    """

    def __init__(self, layout: Layout, reduction: Reduction, executor: Executor | None) -> None:
        self._reduction = reduction
        self._executor = executor
        self.records = 0
        self.gradient = zeros(layout.sizes, layout.arenas(trainable=True))
        self.state = zeros(layout.sizes, layout.arenas(trainable=False))

    def groups(self) -> dict[str, Arenas]:
        """Both sums, by their names in a snapshot."""
        return {"accumulated/gradient": self.gradient, "accumulated/state": self.state}

    def add(self, gradient: Arenas, state: Arenas | None, records: int) -> None:
        """Join one more gradient, and the state delta that came with it; None is no change."""
        first = self.records == 0
        weight = self.weight(records)
        self._accumulate(self.gradient, gradient, weight, first)
        if state is not None:
            self._accumulate(self.state, state, records, first)
        elif first:
            for total in self.state.values():
                total.fill(0)
        self.records += records

    def weight(self, records: int) -> int:
        """What a gradient of so many records is multiplied with before it is added."""
        return records if self._reduction is Reduction.MEAN else 1

    @property
    def gradient_scale(self) -> float:
        """What to multiply ``gradient`` with to have the joined gradient."""
        return 1 / self.records if self._reduction is Reduction.MEAN else 1.0

    @property
    def state_scale(self) -> float:
        """What to multiply ``state`` with: state deltas are averaged with either reduction."""
        return 1 / self.records

    def start_over(self) -> None:
        """Begin the next version; the next ``add`` overwrites the sums."""
        self.records = 0

    def _accumulate(self, totals: Arenas, addends: Arenas, weight: float, first: bool) -> None:
        arithmetic.accumulate(totals, addends, weight, first=first, executor=self._executor)
