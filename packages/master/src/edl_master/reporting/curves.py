"""Curves for the status page: a bounded number of points, however long the job."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

MOST_POINTS = 400
"""More cannot be told apart on a screen, and a status stays well below a hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a parameter version, ``at_s`` seconds after the job started."""

    step: int
    at_s: float
    value: float


class Curve:
    """Points in the order in which they came; neighbours are averaged when there are too many.

    Every point of the curve stands for the same number of points that were added, apart from
    the last one, which may be of fewer.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
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
        """The curve: at most the number of points asked for, the newest included."""
        return [*self._points, _mean(self._pending)] if self._pending else list(self._points)


class Curves:
    """Curves by name; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._curves: dict[str, Curve] = {}

    def add(self, name: str, point: Point) -> None:
        """Add a point to a curve, which begins with it if it is new."""
        with self._lock:
            self._curves.setdefault(name, Curve()).add(point)

    def restore(self, name: str, points: Iterable[Point], last_step: int) -> None:
        """Take over a curve of an earlier master, up to the step from which this one goes on."""
        for point in points:
            if point.step <= last_step:
                self.add(name, point)

    def all(self) -> dict[str, list[Point]]:
        """All curves, in the order in which they began."""
        with self._lock:
            return {name: curve.points() for name, curve in self._curves.items()}


def _mean(points: list[Point]) -> Point:
    count = len(points)
    return Point(
        step=points[-1].step,
        at_s=points[-1].at_s,
        value=sum(point.value for point in points) / count,
    )
