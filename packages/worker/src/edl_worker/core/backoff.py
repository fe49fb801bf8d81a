"""Decides how long to wait before a call is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 1.0


def delays(random: Callable[[], float]) -> Iterator[float]:
    """Yield the seconds before each further attempt: doubling up to a second, with jitter.

    Workers that lost one master together must not come back in step.

    Args:
        random: a number in [0, 1) at each call.
    """
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s * (0.75 + 0.5 * random())
        delay_s = min(2 * delay_s, MAX_DELAY_S)
