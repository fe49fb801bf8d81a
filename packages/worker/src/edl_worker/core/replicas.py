"""Replicated training as its members see it: generations, and the steps that they report.

``docs/adr/0032`` describes the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Numbers of one type that members add up.

    Attributes:
        dtype: of the numbers, such as ``float32``.
        count: how many there are.
        is_mean: the result is the mean by weight; otherwise the sum of all that have a weight.
    """

    dtype: str
    count: int
    is_mean: bool = True
