"""The layout of the slots of whole-variable rules: flat arrays, variable by variable.

The slots of elementwise rules have the layout of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Place
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.update_rules import WholeVariableRule

Slots = Mapping[str, Mapping[ArenaKey, Array]]


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """The place of a slot of one variable.

    Attributes:
        variable: its name.
        slot: the name that the rule gives it.
        group: the name of the slot's arrays.
        arena: that of the values; which of these arrays.
        start: the first element in the array.
        shape: of the slot.
        initial: what it is filled with at first.
    """

    variable: str
    slot: str
    group: str
    arena: ArenaKey
    start: int
    shape: tuple[int, ...]
    initial: float

    @property
    def stop(self) -> int:
        """The index after the last element."""
        return self.start + prod(self.shape)

    def view(self, slots: Slots) -> Array:
        """Return the slot in its shape."""
        return slots[self.group][self.arena][self.start : self.stop].reshape(self.shape)


def place_slots(
    rule: WholeVariableRule, number: int, places: Iterable[Place]
) -> Iterator[SlotPlace]:
    """Yield the places of all slots of some variables.

    Args:
        rule: that of the variables.
        number: of the optimizer among those of the model; no two share arrays.
        places: of the variables.
    """
    ends: dict[tuple[str, ArenaKey], int] = {}
    for place in places:
        for slot in rule.slots(place.variable):
            if slot.used:
                group = f"{number}/{slot.name}"
                start = ends.get((group, place.arena), 0)
                shape = place.variable.shape if slot.shape is None else slot.shape
                found = SlotPlace(
                    place.variable.name, slot.name, group, place.arena, start, shape, slot.initial
                )
                ends[group, place.arena] = found.stop
                yield found


def slot_ranges(optimizer: Optimizer, model: Layout, part: Layout) -> dict[str, tuple[int, int]]:
    """Return which elements of the arrays of a model's slots belong to a part of its variables.

    Only arrays of rules of whole variables are here, by their names in snapshots.

    Args:
        optimizer: of the model, with its others.
        model: all variables.
        part: some of them, neighbours in ``model``.
    """
    held = {variable.name for variable in part.variables}
    ranges: dict[str, tuple[int, int]] = {}
    for number, (one, names) in enumerate(optimizer.shares(model)):
        if isinstance(one.rule, WholeVariableRule):
            places = (p for p in model.places if p.variable.trainable and p.variable.name in names)
            for slot in place_slots(one.rule, number, places):
                name = f"slots/{slot.group}/{slot.arena}"
                start, stop = ranges.get(name, (0, 0))
                if slot.variable in held:
                    start, stop = slot.start if start == stop else start, slot.stop
                ranges[name] = start, stop
    return ranges
