"""Several optimizers in one model, each for its own variables, as the two of a GAN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.gradient_clip import shared_sums
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array, Layout
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.tables.joint_tables import JointGradient
from edl_master.core.parameters.updater import Updater


class CombinedUpdater:
    """Applies each of several optimizers to its variables; an update makes a step of all.

    The optimizers share slots of the same name, so that a snapshot looks like that of one.

    Attributes:
        optimizer: the first, with its ``others``.
        slots: of all of them.
    """

    def __init__(self, optimizer: Optimizer, layout: Layout, executor: Executor | None) -> None:
        """Make the updaters.

        Args:
            optimizer: has ``others``, and updates all variables that none of these has.
            layout: has no tables.
            executor: runs slices of large arenas at the same time.
        """
        self.optimizer = optimizer
        self.slots: dict[str, dict[ArenaKey, Array]] = {}
        self._updaters = [
            Updater(one, layout, executor, names, self.slots, number)
            for number, (one, names) in enumerate(optimizer.shares(layout))
        ]

    @property
    def iterations(self) -> int:
        """Updates made so far, by each of them."""
        return self._updaters[0].iterations

    @iterations.setter
    def iterations(self, count: int) -> None:
        for updater in self._updaters:
            updater.iterations = count

    @property
    def rate(self) -> float | None:
        """The learning rate that callbacks have set, which is the first optimizer's."""
        return self._updaters[0].rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._updaters[0].rate = rate

    @property
    def memory(self) -> dict[str, float]:
        """The numbers that the rules carry, each with the number of its optimizer."""
        return {
            f"{number}/{name}": value
            for number, updater in enumerate(self._updaters)
            for name, value in updater.memory.items()
        }

    @memory.setter
    def memory(self, memory: Mapping[str, float]) -> None:
        for number, updater in enumerate(self._updaters):
            start = f"{number}/"
            updater.memory = {
                name.removeprefix(start): value
                for name, value in memory.items()
                if name.startswith(start)
            }

    def apply(
        self,
        values: Arenas,
        gradient: Arenas,
        scale: float = 1.0,
        rows: Sequence[JointGradient] = (),
        squares: tuple[float, ...] = (),
        updates: int = 1,
    ) -> None:
        """Update values in place; see ``Updater.apply`` for the arguments."""
        assert not rows, "one optimizer only updates rows"
        given = iter(squares)
        for updater in self._updaters:
            needed = shared_sums(updater.optimizer.clipping, 0) if squares else 0
            own = tuple(next(given) for _ in range(needed))
            updater.apply(values, gradient, scale, (), own, updates)

    def finish(self, values: Arenas) -> bool:
        """Replace values by their moving average where one is kept; return whether any is."""
        finished = [updater.finish(values) for updater in self._updaters]
        return any(finished)

    def squares(self, gradient: Arenas, rows: Mapping[int, Array]) -> tuple[float, ...]:
        """Return the ``shared_sums`` of a gradient, or of a part of one, optimizer by optimizer."""
        return tuple(
            square for updater in self._updaters for square in updater.squares(gradient, rows)
        )

    def warm_up(self) -> None:
        """Compile the loops of all of them."""
        for updater in self._updaters:
            updater.warm_up()
