"""Local steps: optimizers work in the workers, and the store adds the differences they push.

Only this module distinguishes a store of a job with local steps from other stores; see
docs/adr/0012.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edl_master.core.parameters.arithmetic import Executor, accumulate
from edl_master.core.parameters.combined_updater import CombinedUpdater
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array, Layout
from edl_master.core.parameters.modes import Async, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.tables.joint_tables import JointGradient
from edl_master.core.parameters.updater import Updater


class UpdateRule(Protocol):
    """How a store applies a gradient; see ``Updater`` for the methods."""

    optimizer: Optimizer
    iterations: int
    memory: dict[str, float]
    rate: float | None
    slots: dict[str, dict[ArenaKey, Array]]

    def apply(
        self,
        values: Arenas,
        gradient: Arenas,
        scale: float = 1.0,
        rows: Sequence[JointGradient] = (),
        squares: tuple[float, ...] = (),
        updates: int = 1,
    ) -> None: ...

    def finish(self, values: Arenas) -> bool: ...

    def squares(self, gradient: Arenas, rows: Mapping[int, Array]) -> tuple[float, ...]: ...

    def warm_up(self) -> None: ...


class DifferenceUpdater:
    """Adds differences that workers' own optimizers have made; has no optimizer slots.

    Attributes:
        optimizer: at work in the workers; here it only gives the learning rate.
        iterations: updates made by workers so far.
        memory: empty.
        rate: as in ``Updater``.
        slots: empty.
    """

    def __init__(self, optimizer: Optimizer, executor: Executor | None) -> None:
        self.optimizer = optimizer
        self.iterations = 0
        self.memory: dict[str, float] = {}
        self.rate: float | None = None
        self.slots: dict[str, dict[ArenaKey, Array]] = {}
        self._executor = executor

    def apply(
        self,
        values: Arenas,
        gradient: Arenas,
        scale: float = 1.0,
        rows: Sequence[JointGradient] = (),
        squares: tuple[float, ...] = (),
        updates: int = 1,
    ) -> None:
        """Add the difference that ``updates`` minibatches have made."""
        accumulate(values, gradient, scale, first=False, executor=self._executor)
        self.iterations += updates

    def finish(self, values: Arenas) -> bool:
        """Do nothing: no average of the values is kept."""
        return False

    def squares(self, gradient: Arenas, rows: Mapping[int, Array]) -> tuple[float, ...]:
        """Return nothing to clip by: differences are not clipped."""
        return ()

    def warm_up(self) -> None:
        """Do nothing: ``Values.warm_up`` compiles what is needed."""


def make_updater(
    mode: UpdateMode, optimizer: Optimizer, layout: Layout, executor: Executor | None
) -> UpdateRule:
    """Return the updater of a store in this mode."""
    if is_local(mode):
        return DifferenceUpdater(optimizer, executor)
    if optimizer.others:
        return CombinedUpdater(optimizer, layout, executor)
    return Updater(optimizer, layout, executor)


def is_local(mode: UpdateMode) -> bool:
    """Return whether workers make local steps."""
    return isinstance(mode, Async) and mode.local


def check_local_steps(optimizer: Optimizer, layout: Layout, mode: UpdateMode) -> None:
    """Refuse what local steps cannot do.

    Raises:
        OptimizerUnsupported: the optimizer keeps an average of values that no worker sees.
        ValueError: rows of tables would have to be updated in workers.
    """
    if not is_local(mode):
        return
    if layout.tables:
        raise ValueError("embedding tables cannot be combined with local steps")
    if any(one.name == "ScheduleFreeAdamW" for one in optimizer.each):
        raise OptimizerUnsupported(
            "class",
            "ScheduleFreeAdamW with --local-steps",
            "train without --local-steps: no worker sees all values that it averages",
        )
    if optimizer.keeps_average:
        raise OptimizerUnsupported(
            f"{optimizer.name}.use_ema",
            "True with --local-steps: no worker sees all values that would be averaged",
            "leave it out, or train without --local-steps",
        )
