"""Learning rates as functions of the step, with the names and defaults of Keras 3.

A schedule is called with the number of updates made so far (0 at the first update) and answers
with a float32, computed in float32 as Keras does: with the master and with Keras alone, the same
step then has the same rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from edl_master.core.parameters.keras_config import (
    OptimizerUnsupported,
    foreign_class,
    read_fields,
    unwrap,
)

F = np.float32


class Schedule(Protocol):
    """A learning rate for each step."""

    def __call__(self, step: int) -> np.float32: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A schedule with one rate for all steps."""

    learning_rate: float

    def __call__(self, step: int) -> np.float32:
        return F(self.learning_rate)


@dataclass(frozen=True, slots=True)
class ExponentialDecay:
    """``initial decay_rate^p`` with ``p = step / decay_steps``, rounded down if staircase."""

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __call__(self, step: int) -> np.float32:
        p = F(step) / F(self.decay_steps)
        p = np.floor(p) if self.staircase else p
        return F(F(self.initial_learning_rate) * F(self.decay_rate) ** p)


@dataclass(frozen=True, slots=True)
class PiecewiseConstantDecay:
    """``values[i]`` up to and including step ``boundaries[i]``; the last value after that."""

    boundaries: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", tuple(self.boundaries))
        object.__setattr__(self, "values", tuple(self.values))
        if len(self.values) != len(self.boundaries) + 1 or not self.boundaries:
            raise OptimizerUnsupported(
                "PiecewiseConstantDecay",
                f"{len(self.boundaries)} boundaries and {len(self.values)} values",
                "give one more value than boundaries, and at least one boundary",
            )

    def __call__(self, step: int) -> np.float32:
        for boundary, value in zip(self.boundaries, self.values, strict=False):
            if step <= int(boundary):
                return F(value)
        return F(self.values[-1])


@dataclass(frozen=True, slots=True)
class PolynomialDecay:
    """Polynomial decay.

    ``(initial - end)(1 - s / d)^power + end`` with ``d = decay_steps`` and
    ``s = min(step, d)``; with cycle ``s = step`` and ``d`` the next multiple of decay_steps.
    """

    initial_learning_rate: float
    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False

    def __call__(self, step: int) -> np.float32:
        s, d = F(step), F(self.decay_steps)
        if self.cycle:
            d = d * (F(1) if step == 0 else np.ceil(s / d))
        else:
            s = min(s, d)
        initial, end = F(self.initial_learning_rate), F(self.end_learning_rate)
        return F((initial - end) * (1 - s / d) ** F(self.power) + end)


@dataclass(frozen=True, slots=True)
class InverseTimeDecay:
    """``initial / (1 + decay_rate p)``, ``p = step / decay_steps``, rounded down if staircase."""

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __call__(self, step: int) -> np.float32:
        p = F(step) / F(self.decay_steps)
        p = np.floor(p) if self.staircase else p
        return F(F(self.initial_learning_rate) / (1 + F(self.decay_rate) * p))


@dataclass(frozen=True, slots=True)
class CosineDecay:
    """``from ((1 - alpha)(1 + cos(pi s / decay_steps)) / 2 + alpha)``, ``s`` at most decay_steps.

    With a warmup_target, the rate first climbs in a line from the initial rate to the target
    for warmup_steps, and decays from there.
    """

    initial_learning_rate: float
    decay_steps: float
    alpha: float = 0.0
    warmup_target: float | None = None
    warmup_steps: float = 0

    def __call__(self, step: int) -> np.float32:
        s, d, warm = F(step), F(self.decay_steps), F(self.warmup_steps)
        initial = F(self.initial_learning_rate)
        if self.warmup_target is None:
            return self._decay(min(s, d) / d, initial)
        target = F(self.warmup_target)
        s = min(s, d + warm)
        if s < warm:
            return F((target - initial) * (s / warm) + initial)
        return self._decay((s - warm) / d, target)

    def _decay(self, fraction: np.float32, start: np.float32) -> np.float32:
        cosine = F(0.5) * (1 + np.cos(F(math.pi) * fraction))
        return F(start * (F(1 - self.alpha) * cosine + F(self.alpha)))


@dataclass(frozen=True, slots=True)
class CosineDecayRestarts:
    """Cosine decay that starts again.

    Each period is t_mul times as long as the one before and begins with m_mul times its rate.
    """

    initial_learning_rate: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    def __call__(self, step: int) -> np.float32:
        t_mul, alpha = F(self.t_mul), F(self.alpha)
        fraction = F(step) / F(self.first_decay_steps)
        if t_mul == 1:
            period = np.floor(fraction)
            fraction = fraction - period
        else:
            period = np.floor(np.log(1 - fraction * (1 - t_mul)) / np.log(t_mul))
            before = (1 - t_mul**period) / (1 - t_mul)
            fraction = (fraction - before) / t_mul**period
        cosine = F(0.5) * F(self.m_mul) ** period * (1 + np.cos(F(math.pi) * fraction))
        return F(F(self.initial_learning_rate) * ((1 - alpha) * cosine + alpha))


_SCHEDULES: dict[str, type[Schedule]] = {
    "ExponentialDecay": ExponentialDecay,
    "PiecewiseConstantDecay": PiecewiseConstantDecay,
    "PolynomialDecay": PolynomialDecay,
    "InverseTimeDecay": InverseTimeDecay,
    "CosineDecay": CosineDecay,
    "CosineDecayRestarts": CosineDecayRestarts,
}


def parse_learning_rate(value: object) -> Schedule:
    """Read a learning rate as Keras serializes it: a number, or a schedule.

    Raises:
        OptimizerUnsupported: it is neither, or a schedule that is not known here.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Constant(float(value))
    remedy = f"use a number or one of {', '.join(_SCHEDULES)}"
    if not isinstance(value, Mapping):
        raise OptimizerUnsupported("learning_rate", f"{value!r}", remedy)
    name, config, is_keras = unwrap(value, "learning_rate", "keras.optimizers.schedules", remedy)
    if not is_keras:
        raise foreign_class(value, "learning_rate", remedy)
    if name not in _SCHEDULES:
        raise OptimizerUnsupported("learning_rate", name, remedy)
    kind: Any = _SCHEDULES[name]
    schedule: Schedule = kind(**read_fields(name, kind, config))
    return schedule


def find_schedules(serialized: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Return the name of the schedule of an optimizer and of each of its ``others``.

    It is None for a constant learning rate. Also optimizers are read that have no rule here, which
    workers apply.
    """
    others = tuple(name for each in serialized.get("others") or () for name in find_schedules(each))
    config = serialized.get("config") or {}
    if inner := config.get("inner_optimizer"):  # of a LossScaleOptimizer
        return find_schedules(inner) + others
    rate = config.get("learning_rate")
    return (str(rate.get("class_name")) if isinstance(rate, Mapping) else None, *others)
