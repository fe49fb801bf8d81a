"""The curves of a job by name, for the job's page."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from edl_master.core.curves import Curve, Point


class Curves:
    """Curves by name; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._curves: dict[str, Curve] = {}

    def add(self, name: str, point: Point) -> None:
        """Add a point to a curve, which begins with it if it is new."""
        with self._lock:
            self._curves.setdefault(name, Curve()).add(point)

    def restore(self, name: str, points: Iterable[Point], last_step: int) -> None:
        """Take over a curve of an earlier master, up to the step of the restored snapshot."""
        for point in points:
            if point.step <= last_step:
                self.add(name, point)

    def all(self) -> dict[str, list[Point]]:
        """Return all curves, in the order in which they began."""
        with self._lock:
            return {name: curve.points() for name, curve in self._curves.items()}
