"""A learning rate by version as a schedule of Keras, which the master can follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

# Versions at which a schedule is called: up to the first number with the first stride, and so on.
_STRIDES = ((4_096, 1), (1_000_000, 500), (100_000_000, 50_000))
_MAX_STEPS = 256


def steps_of(schedule: Callable[[int], Any]) -> Any:
    """Return the learning rate of the master's optimizer: a number, or a Keras schedule.

    Args:
        schedule: gives the learning rate for a version of the model, and is constant for many
            versions at a time.

    Raises:
        ValueError: the schedule changes too often to be a step function.
        TypeError: the schedule does not return numbers.
    """

    def rate(version: int) -> float:
        value = schedule(version)
        if value is None or np.ndim(value) != 0 or not np.isfinite(value):
            raise TypeError(f"returned {value!r} for version {version}, not a number")
        return float(np.float32(value))

    boundaries: list[int] = []
    values = [rate(0)]
    before = 0
    for version in _sampled_versions():
        while rate(version) != values[-1]:
            before = _last_with(rate, values[-1], before, version)
            boundaries.append(before)
            before += 1
            values.append(rate(before))
            if len(boundaries) > _MAX_STEPS:
                raise ValueError(
                    f"has more than {_MAX_STEPS} steps, {_MAX_STEPS} of them up to version "
                    f"{boundaries[-1]}"
                )
        before = version
    if not boundaries:
        return values[0]
    return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)


def _sampled_versions() -> Iterator[int]:
    start = 0
    for stop, stride in _STRIDES:
        yield from range(start, stop, stride)
        start = stop


def _last_with(rate: Callable[[int], float], value: float, low: int, high: int) -> int:
    """Return the last version before ``high`` at which the value is still that of ``low``."""
    while high - low > 1:
        middle = (low + high) // 2
        if rate(middle) == value:
            low = middle
        else:
            high = middle
    return low
