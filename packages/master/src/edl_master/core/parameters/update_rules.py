"""The base classes of update rules. Rules of other packages derive from the last two.

Such a package has an entry point of the group ``edl.optimizers`` that is named like the Keras class
and leads to the rule: a frozen dataclass with a field for each option of the Keras class, apart
from those that all optimizers have. See docs/extending.md.

The updater clips gradients and decays values before it calls a rule, and keeps averages of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from edl_master.core.parameters.layout import Array, Variable

Factors: TypeAlias = tuple[Any, ...]
"""Numbers (of the arena's dtype) and flags that a kernel takes after its slots."""

Memory: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Slot:
    """State of an optimizer; an unused one takes no memory.

    Attributes:
        name: of the slot; unique among those of the rule.
        initial: the number that it is filled with at first.
        used: whether there is such a slot.
        shape: of a ``WholeVariableRule``'s slot; None: that of the values.
    """

    name: str
    initial: float = 0.0
    used: bool = True
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an optimizer.

    Attributes:
        number: of the step, from 1.
        learning_rate: a numpy scalar of the dtype of the values.
    """

    number: int
    learning_rate: Any


class RuleFailed(RuntimeError):
    """An update rule raised an exception; values are half updated."""

    def __init__(self, rule: object, error: Exception) -> None:
        kind = type(rule)
        name = f"{kind.__module__}.{kind.__qualname__}"
        super().__init__(f"the update rule {name} fails: {type(error).__name__}: {error}")


class KernelRule(Protocol):
    """A rule that one loop over flat arrays applies: which loop, which slots, which numbers."""

    @property
    def kernel(self) -> str | Callable[..., None]:
        """The loop, or its name in ``kernels``."""
        ...

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots in the order in which the kernel takes them."""
        ...

    def advance(self, step: int, memory: Mapping[str, float]) -> Memory:
        """Return what the rule remembers at step ``step`` (from 1), given what it did before."""
        ...

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        """Return the kernel's last arguments at step ``step`` (from 1).

        Args:
            step: number of the step.
            lr: learning rate, a numpy scalar of the arena's dtype.
            memory: what ``advance`` gave for this step.
        """
        ...


class SlotRule:
    """Base of the rules that remember nothing but their slots."""

    __slots__ = ()

    def advance(self, step: int, memory: Mapping[str, float]) -> Memory:
        """Return nothing to remember."""
        del step, memory
        return {}


class ElementwiseRule(SlotRule, ABC):
    """A rule that updates each element by itself.

    It gets any part of the values at a time, also rows of embedding tables, on several threads.
    """

    __slots__ = ()

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots, each shaped like the values."""
        return ()

    @abstractmethod
    def update(self, value: Array, gradient: Array, slots: Mapping[str, Array], step: Step) -> None:
        """Update some values and their slots in place.

        Args:
            value: the values, float32 or float64.
            gradient: of the same shape and dtype; must not be changed.
            slots: those that are used, by name; of the same shape and dtype.
            step: number and learning rate.
        """

    @property
    def kernel(self) -> Callable[..., None]:
        """The loop: ``update`` after scaling, clipping and weight decay."""
        return self._run

    def factors(self, step: int, lr: Any, memory: Mapping[str, float]) -> Factors:
        """Return the step."""
        return (Step(step, lr),)

    def _run(
        self, value: Array, gradient: Array, scale: Any, limit: Any, decay: Any, *rest: Any
    ) -> None:
        pairs = zip(self.slots(), rest[:-1], strict=True)
        slots = {slot.name: array for slot, array in pairs if slot.used}
        with _guard_rule(self):
            gradient = prepare(value, gradient, scale, limit, decay)
            self.update(value, gradient, slots, rest[-1])


class WholeVariableRule(ABC):
    """A rule that needs a variable as a whole, such as its norm or the product of matrices.

    A job with several parameter servers has each variable on one of them. Rows of embedding tables
    cannot have such a rule.
    """

    __slots__ = ()

    def slots(self, variable: Variable) -> tuple[Slot, ...]:
        """Return the slots of a variable, each of its own shape if it says so."""
        return ()

    @abstractmethod
    def update(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        """Update a variable and its slots in place.

        Args:
            variable: its name (Keras's path), shape and dtype.
            value: the values, in the variable's shape and dtype.
            gradient: of the same shape and dtype; must not be changed.
            slots: those of the variable that are used, by name.
            step: number and learning rate.
        """

    def weight_decay(self, variable: Variable, configured: float) -> float:
        """Return the weight decay of a variable that is not excluded from it."""
        return configured

    def run(
        self,
        variable: Variable,
        value: Array,
        gradient: Array,
        numbers: tuple[Any, Any, Any],
        slots: Mapping[str, Array],
        step: Step,
    ) -> None:
        """Update a variable after scaling, clipping and weight decay.

        Args:
            variable, value, gradient, slots, step: as for ``update``.
            numbers: scale, limit and decay, as kernels take them.
        """
        with _guard_rule(self):
            gradient = prepare(value, gradient, *numbers)
            self.update(variable, value, gradient, slots, step)


Rule: TypeAlias = KernelRule | WholeVariableRule


def prepare(value: Array, gradient: Array, scale: Any, limit: Any, decay: Any) -> Array:
    """Let values decay in place, and return the scaled and clipped gradient."""
    value -= value * decay
    return np.asarray(np.clip(gradient * scale, -limit, limit))


@contextmanager
def _guard_rule(rule: object) -> Iterator[None]:
    """Name the rule in what it raises; let it divide by zero, as kernels do."""
    try:
        with np.errstate(all="ignore"):
            yield
    except Exception as error:
        raise RuleFailed(rule, error) from error
