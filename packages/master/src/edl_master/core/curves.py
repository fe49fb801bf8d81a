"""Curves of bounded size: averages of neighbours replace points where there are too many."""

from __future__ import annotations

from dataclasses import dataclass

MAX_POINTS = 400
"""A screen shows no more, and a status stays well below a hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a parameter version, ``at_s`` seconds after the job started."""

    step: int
    at_s: float
    value: float


class Curve:
    """Points in the order of their addition; neighbours are averaged when there are too many.

    Every point of the curve is the mean of the same number of added points; the last one may be
    the mean of fewer.
    """

    def __init__(self, most: int = MAX_POINTS) -> None:
        self._most = most
        self._points: list[Point] = []
        self._per_point = 1
        self._pending: list[Point] = []

    def add(self, point: Point) -> None:
        """Add a point at the end."""
        self._pending.append(point)
        if len(self._pending) == self._per_point:
            self._points.append(_mean(self._pending))
            self._pending = []
        if len(self._points) == self._most:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_mean(list(pair)) for pair in pairs]
            self._per_point *= 2

    def points(self) -> list[Point]:
        """Return the curve, the newest point included."""
        return [*self._points, _mean(self._pending)] if self._pending else list(self._points)


def _mean(points: list[Point]) -> Point:
    count = len(points)
    return Point(
        step=points[-1].step,
        at_s=points[-1].at_s,
        value=sum(point.value for point in points) / count,
    )
