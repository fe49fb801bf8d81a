"""Applies an optimizer to arenas, in place, and holds its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from edl_master.core.parameters.arithmetic import (
    Executor,
    kernel,
    read_only,
    run_all,
    slices,
    sum_of_squares,
)
from edl_master.core.parameters.gradient_clip import ClipGlobalNorm, ClipNorm, ClipValue, shrink
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array, Layout, Place, Variable
from edl_master.core.parameters.optimizers import Ema, Optimizer
from edl_master.core.parameters.payload import zeros
from edl_master.core.parameters.slot_layout import SlotPlace, place_slots
from edl_master.core.parameters.tables.joint_tables import JointGradient
from edl_master.core.parameters.update_rules import (
    Factors,
    KernelRule,
    Slot,
    Step,
    WholeVariableRule,
)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Elements of one arena that share clipping and weight decay.

    Attributes:
        arena: that has them, from ``start`` to ``stop``.
        decay: the weight decay, to be multiplied with the learning rate.
        variable: that they are, if each is updated as a whole.
    """

    arena: ArenaKey
    start: int
    stop: int
    decay: float
    variable: Variable | None = None


class Updater:
    """Applies an optimizer to the trainable arenas of one layout.

    Attributes:
        iterations: updates made so far; the position in the learning rate's schedule.
        slots: the optimizer's state, by slot and arena. Slots are just state: flat arrays to be
            saved and restored as they are, shaped like the arenas unless the rule needs whole
            variables.
        memory: the numbers that the rule carries from step to step.
        rate: the learning rate of all further updates; None: what the optimizer's schedule says.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        layout: Layout,
        executor: Executor | None,
        variables: frozenset[str] | None = None,
        slots: dict[str, dict[ArenaKey, Array]] | None = None,
        number: int = 0,
    ) -> None:
        """Make the slots, as large as all variables of the layout.

        Args:
            optimizer: what an update does; of its ``others`` nothing is used here.
            layout: the variables.
            executor: runs slices of large arenas at the same time.
            variables: names of those that are updated, without rows of tables; None: all.
            slots: those of other updaters of the layout, which further ones join: each uses its
                own variables' elements of them.
            number: of the optimizer among those of the model.
        """
        self.optimizer = optimizer
        self.iterations = 0
        self.memory: dict[str, float] = {}
        self.rate: float | None = None
        self._executor = executor
        self._arenas = layout.arenas(trainable=True)
        self._segments = tuple(_segments(optimizer, layout, variables))
        self._variables = [
            v
            for v in layout.variables
            if v.trainable and (variables is None or v.name in variables)
        ]
        self._tables = [table.name for table in layout.tables]
        self.slots: dict[str, dict[ArenaKey, Array]] = {} if slots is None else slots
        self._slot_places: dict[str, list[SlotPlace]] = {}
        if isinstance(optimizer.rule, WholeVariableRule):
            wanted = set(self._variables)
            self._place_slots(
                optimizer.rule, number, [p for p in layout.places if p.variable in wanted]
            )
        else:
            for slot in optimizer.rule.slots():
                if slot.used:
                    self._add_slot(slot.name, slot.initial, layout)
        if optimizer.ema is not None:
            self._add_slot("average", 0.0, layout)

    def apply(
        self,
        values: Arenas,
        gradient: Arenas,
        scale: float = 1.0,
        rows: Sequence[JointGradient] = (),
        squares: tuple[float, ...] = (),
        updates: int = 1,
    ) -> None:
        """Update values and rows in place.

        Args:
            values: the trainable arenas.
            gradient: arenas of the same sizes, finite; not changed.
            scale: the gradient is multiplied with this first.
            rows: of tables, gradients of some of their rows; all others stay as they are, their
                slots too.
            squares: if this is a part of a gradient, the ``shared_sums`` of the whole.
            updates: always 1; see ``local_steps`` for more.
        """
        assert updates == 1, "an optimizer makes one update of a gradient"
        optimizer, step = self.optimizer, self.iterations + 1
        rate = optimizer.rate_at(self.iterations, self.rate)
        limit = optimizer.clipping.limit if isinstance(optimizer.clipping, ClipValue) else np.inf
        gradient = {key: read_only(gradient[key]) for key in self._arenas}
        scales = self._scales(gradient, scale, rows, squares)

        def numbers_for(real: Any, part_scale: float, decay: float) -> Factors:
            return real(part_scale), real(limit), real(decay) * real(rate)

        jobs: list[partial[Any]] = []
        rule = optimizer.rule
        if not isinstance(rule, WholeVariableRule):
            self.memory = rule.advance(step, self.memory)
            loop = rule.kernel if callable(rule.kernel) else kernel(rule.kernel)
        for segment, segment_scale in zip(self._segments, scales, strict=False):
            key = segment.arena
            real: Any = np.dtype(key.dtype).type
            numbers = numbers_for(real, segment_scale, segment.decay)
            if isinstance(rule, WholeVariableRule):
                arrays = values[key], gradient[key]
                jobs.append(self._job_for(rule, segment, arrays, numbers, Step(step, real(rate))))
                continue
            factors = rule.factors(step, real(rate), self.memory)
            for cut in slices(segment.start, segment.stop):
                slots = [array[cut] for array in self._slots_for(rule, key)]
                arrays = values[key][cut], gradient[key][cut]
                jobs.append(partial(loop, *arrays, *numbers, *slots, *factors))
        run_all(jobs, self._executor)
        if rows:
            assert not isinstance(rule, WholeVariableRule), "rows are no whole variables"
            factors = rule.factors(step, np.float32(rate), self.memory)
            of_tables = iter(scales[len(self._segments) :])
            for part, table_scale, decay in self._equal_parts(rows, of_tables):
                numbers = numbers_for(np.float32, table_scale, decay)
                update = partial(self._update_rows, loop, rule.slots(), numbers, factors)
                part.tables.apply(part, update, self._executor)
        if optimizer.ema is not None:
            self._move_average(optimizer.ema, values)
        self.iterations = step

    def _equal_parts(
        self, rows: Sequence[JointGradient], scales: Iterator[float]
    ) -> Iterator[tuple[JointGradient, float, float]]:
        """Yield gradients of tables that share scale and weight decay, with both."""
        optimizer = self.optimizer
        for found in rows:
            each = [
                (
                    next(scales),
                    0.0 if table.spec.name in optimizer.undecayed else optimizer.weight_decay,
                )
                for table in found.tables.all
            ]
            first = 0
            for (scale, decay), run in groupby(each):
                last = first + len(list(run))
                yield found.cut(first, last), scale, decay
                first = last

    def _job_for(
        self,
        rule: WholeVariableRule,
        segment: _Segment,
        arrays: tuple[Array, Array],
        numbers: Factors,
        step: Step,
    ) -> partial[Any]:
        """Return the update of a variable as a whole, given its arena and that of gradients."""
        variable = segment.variable
        assert variable is not None
        value, gradient = (
            array[segment.start : segment.stop].reshape(variable.shape) for array in arrays
        )
        places = self._slot_places.get(variable.name, ())
        slots = {place.slot: place.view(self.slots) for place in places}
        return partial(rule.run, variable, value, gradient, numbers, slots, step)

    def _update_rows(
        self,
        loop: Callable[..., Any],
        slots_of_rule: Sequence[Slot],
        numbers: Factors,
        factors: Factors,
        values: Array,
        gradient: Array,
        slots: list[Array],
    ) -> None:
        """Update the rows that ``Table.apply`` has gathered."""
        used = iter(slots)
        all_slots = [next(used) if s.used else np.empty(0, np.float32) for s in slots_of_rule]
        loop(values, gradient, *numbers, *all_slots, *factors)

    def warm_up(self) -> None:
        """Compile the loops for the dtypes in use."""
        update_once(self.optimizer, self._variables)

    def finish(self, values: Arenas) -> bool:
        """Replace the values by their moving average; return False if there is none.

        As in Keras this ends a training: it is no update, and the average stays.
        """
        if self.optimizer.ema is None or self.iterations == 0:
            return False
        for key, start, stop in self._ranges():
            values[key][start:stop] = self.slots["average"][key][start:stop]
        return True

    def squares(self, gradient: Arenas, rows: Mapping[int, Array]) -> tuple[float, ...]:
        """Return the ``shared_sums`` of a gradient, or of a part of one.

        Args:
            gradient: of the variables.
            rows: gradients of rows, by the number of their table.
        """
        of_rows = {
            number: sum_of_squares(values.reshape(-1), self._executor)
            for number, values in rows.items()
        }
        match self.optimizer.clipping:
            case ClipGlobalNorm():
                parts = (read_only(gradient[key])[a:b] for key, a, b in self._ranges())
                dense = sum(sum_of_squares(part, self._executor) for part in parts)
                return (dense + sum(of_rows.values()),)
            case ClipNorm():
                return tuple(of_rows.get(number, 0.0) for number in range(len(self._tables)))
            case _:
                return ()

    def _scales(
        self,
        gradient: Arenas,
        scale: float,
        rows: Sequence[JointGradient],
        of_whole: tuple[float, ...],
    ) -> list[float]:
        """Return the factors of the gradient, for each segment and then for each table."""
        parts_of_rows = [part for found in rows for part in found.parts()]
        match self.optimizer.clipping:
            case None | ClipValue():
                return [scale] * (len(self._segments) + len(parts_of_rows))
            case ClipNorm(limit) | ClipGlobalNorm(limit):
                if of_whole and isinstance(self.optimizer.clipping, ClipGlobalNorm):
                    factor = scale * shrink(of_whole[0] * scale * scale, limit)
                    return [factor] * (len(self._segments) + len(parts_of_rows))
                # As many sums as segments: with ClipNorm a segment is a variable.
                parts = [gradient[s.arena][s.start : s.stop] for s in self._segments]
                parts += [values.reshape(-1) for _, values in parts_of_rows]
                squares = [sum_of_squares(part, self._executor) * scale * scale for part in parts]
                if of_whole:
                    numbers = [self._tables.index(table.spec.name) for table, _ in parts_of_rows]
                    squares[len(self._segments) :] = [
                        of_whole[number] * scale * scale for number in numbers
                    ]
                if isinstance(self.optimizer.clipping, ClipNorm):
                    return [scale * shrink(square, limit) for square in squares]
                return [scale * shrink(sum(squares), limit)] * len(squares)

    def _add_slot(self, name: str, initial: float, layout: Layout) -> None:
        arenas = self.slots.setdefault(name, {})
        for key in self._arenas:
            if key not in arenas:
                arenas[key] = np.full(layout.sizes[key], initial, key.dtype)
        for key, start, stop in self._ranges():  # another optimizer's may begin otherwise
            arenas[key][start:stop] = initial

    def _place_slots(self, rule: WholeVariableRule, number: int, places: Sequence[Place]) -> None:
        """Make the slots of variables, one behind the other."""
        found = list(place_slots(rule, number, places))
        for (group, arena), size in {(s.group, s.arena): s.stop for s in found}.items():
            self.slots.setdefault(group, {})[arena] = np.empty(size, arena.dtype)
        for slot in found:
            self._slot_places.setdefault(slot.variable, []).append(slot)
            slot.view(self.slots)[...] = slot.initial

    def _ranges(self) -> Iterator[tuple[ArenaKey, int, int]]:
        """Yield the elements that are updated, as few ranges as possible."""
        last: tuple[ArenaKey, int, int] | None = None
        for each in self._segments:
            if last is not None and (last[0], last[2]) == (each.arena, each.start):
                last = (each.arena, last[1], each.stop)
                continue
            if last is not None:
                yield last
            last = (each.arena, each.start, each.stop)
        if last is not None:
            yield last

    def _slots_for(self, rule: KernelRule, key: ArenaKey) -> list[Array]:
        """Return the arrays that the kernel takes as slots; an unused slot is an empty array."""
        return [
            self.slots[slot.name][key] if slot.used else np.empty(0, key.dtype)
            for slot in rule.slots()
        ]

    def _move_average(self, ema: Ema, values: Arenas) -> None:
        momentum = ema.momentum if self.iterations else 0.0
        frequency = ema.overwrite_frequency
        overwrite = frequency is not None and (self.iterations + 1) % frequency == 0
        follow = kernel("moving_average")
        jobs = []
        for key, start, stop in self._ranges():
            real: Any = np.dtype(key.dtype).type
            numbers = real(momentum), real(1 - momentum), overwrite
            average = self.slots["average"][key]
            jobs += [
                partial(follow, average[cut], values[key][cut], *numbers)
                for cut in slices(start, stop)
            ]
        run_all(jobs, self._executor)


def update_once(optimizer: Optimizer, variables: Iterable[Variable]) -> None:
    """Make one update of few elements of each dtype and, if it matters, number of dimensions.

    That compiles all loops, and shows whether a rule works.
    """
    whole = isinstance(optimizer.rule, WholeVariableRule)
    kinds = {(v.dtype, len(v.shape) if whole else 1): v for v in variables}
    tiny = Layout(replace(v, shape=(2,) * kind[1]) for kind, v in kinds.items())
    values, gradient = (zeros(tiny.sizes, tiny.sizes) for _ in range(2))
    Updater(replace(optimizer, undecayed=frozenset()), tiny, None).apply(values, gradient)


def _segments(
    optimizer: Optimizer, layout: Layout, variables: frozenset[str] | None
) -> Iterator[_Segment]:
    """Yield whole arenas if possible, and variables if some differ or are needed as a whole."""
    rule, decay = optimizer.rule, optimizer.weight_decay
    whole = rule if isinstance(rule, WholeVariableRule) else None
    differ = isinstance(optimizer.clipping, ClipNorm) or (decay and optimizer.undecayed)
    if not (differ or whole or variables is not None):
        for key in layout.arenas(trainable=True):
            yield _Segment(key, 0, layout.sizes[key], decay)
        return
    for place in layout.places:
        variable = place.variable
        if variable.trainable and (variables is None or variable.name in variables):
            own = whole.weight_decay(variable, decay) if whole else decay
            own = 0.0 if variable.name in optimizer.undecayed else own
            yield _Segment(place.arena, place.start, place.stop, own, variable if whole else None)
