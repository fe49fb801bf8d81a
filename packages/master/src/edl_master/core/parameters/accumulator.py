"""Gradient accumulation: the gradients of one synchronous update."""

from __future__ import annotations

from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.layout import Arenas, Layout
from edl_master.core.parameters.modes import Reduction
from edl_master.core.parameters.payload import zeros


class GradientAccumulator:
    """Sums of the gradients and state deltas of one version.

    Attributes:
        count: number of gradients so far.
        records: records behind the gradients so far.
        gradient: sum of the gradients, each times its records with a mean reduction.
        state: sum of the state deltas, each times its records.
    """

    def __init__(self, layout: Layout, reduction: Reduction, executor: Executor | None) -> None:
        self._reduction = reduction
        self._executor = executor
        self.count = 0
        self.records = 0
        self.gradient = zeros(layout.sizes, layout.arenas(trainable=True))
        self.state = zeros(layout.sizes, layout.arenas(trainable=False))

    def groups(self) -> dict[str, Arenas]:
        """Both sums, by their names in a snapshot."""
        return {"accumulated/gradient": self.gradient, "accumulated/state": self.state}

    def add(self, gradient: Arenas, state: Arenas | None, records: int) -> None:
        """Add one more gradient, and the state delta that came with it; None is no change."""
        first = self.records == 0
        weight = self.weight(records)
        self._accumulate(self.gradient, gradient, weight, first)
        if state is not None:
            self._accumulate(self.state, state, records, first)
        elif first:
            for total in self.state.values():
                total.fill(0)
        self.records += records
        self.count += 1

    def weight(self, records: int) -> int:
        """Return the factor of a gradient in the sum, which depends on its number of records."""
        return records if self._reduction is Reduction.MEAN else 1

    @property
    def gradient_scale(self) -> float:
        """The factor that makes ``gradient`` the gradient of all records."""
        return 1 / self.records if self._reduction is Reduction.MEAN else 1.0

    @property
    def state_scale(self) -> float:
        """The factor that makes ``state`` an average, with either reduction."""
        return 1 / self.records

    def reset(self) -> None:
        """Begin the next version; the next ``add`` overwrites the sums."""
        self.count = self.records = 0

    def _accumulate(self, totals: Arenas, addends: Arenas, weight: float, first: bool) -> None:
        arithmetic.accumulate(totals, addends, weight, first=first, executor=self._executor)


def counts_of(accumulator: GradientAccumulator | None) -> dict[str, int]:
    """Count the accumulated gradients, and their records, for a snapshot."""
    count, records = (accumulator.count, accumulator.records) if accumulator else (0, 0)
    return {"accumulated": count, "accumulated_records": records}
