"""Progress: rates, the smoothed loss, and the elapsed time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from edl_master.core.effects import LogScalar
from edl_master.core.goodput import Goodput, TimeCategory
from edl_master.core.identifiers import Version
from edl_master.core.interruption import Interruption

_SMOOTHING = 0.05
"""Weight of a new loss: the curve follows within some twenty minibatches."""

LOSS_POINT_EVERY_S = 0.5
"""Points of the loss curve are means over so long: enough to see, too few to weigh."""


ETA_AFTER_S = 10.0
"""No time left is told before records have been done for so long: it would jump up and down."""


class Rate:
    """Events per second over the last ``window_s``, in one small bucket per second."""

    def __init__(self, window_s: float, since: float) -> None:
        self._window_s = window_s
        self._since = since
        self._buckets: deque[tuple[int, int]] = deque()

    def add(self, count: int, now: float) -> None:
        """Count events that happened now."""
        second = math.floor(now)
        if self._buckets and self._buckets[-1][0] == second:
            second, before = self._buckets.pop()
            count += before
        self._buckets.append((second, count))
        self._forget(now)

    def per_s(self, now: float) -> float:
        """Return the average; 0 when nothing has happened lately."""
        self._forget(now)
        elapsed = now - max(self._since, math.floor(now - self._window_s))
        return sum(count for _, count in self._buckets) / max(elapsed, 1.0)

    def _forget(self, now: float) -> None:
        while self._buckets and self._buckets[0][0] < math.floor(now - self._window_s):
            self._buckets.popleft()


class Progress:
    """Counters and averages over the whole job."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self.steps = 0
        self.version = Version(0)
        self.predictions = 0
        self.gradients_rejected = 0
        self.loss = math.nan
        self._staleness_sum = 0
        self.goodput = Goodput()
        self._elapsed_s = 0.0
        self._accounted_s = 0.0
        self._undone_s = 0.0
        self._clock: float | None = None
        self._rate: Rate | None = None
        self._point: tuple[float, int] = (0.0, 0)
        self._point_at = -math.inf
        self._paced_since_s: float | None = None
        self._paced_until_s = 0.0
        self._paced_records = 0

    def pass_time(self, now: float) -> None:
        """Let time pass up to now."""
        if self._clock is None:
            self._rate = Rate(self._window_s, now)
        else:
            self._elapsed_s += now - self._clock
        self._clock = now

    def spend(self, workers: Mapping[TimeCategory, int]) -> None:
        """Account for how the workers spent the time since the last call."""
        self.goodput.add(self._elapsed_s - self._accounted_s, workers)
        self._accounted_s = self._elapsed_s

    def record_interruption(self, interruption: Interruption, workers: int) -> None:
        """Account for the time from the snapshot to the start of this master.

        Args:
            interruption: how long it was.
            workers: wanted meanwhile.
        """
        self._elapsed_s += interruption.undone_s + interruption.down_s
        self._accounted_s = self._elapsed_s
        self._undone_s = interruption.undone_s * workers
        self.goodput.add(self._undone_s, {TimeCategory.REDONE: 1})
        self.goodput.add(interruption.down_s, {TimeCategory.RESTARTING: workers})

    def keep_undone(self) -> None:
        """Count the work after the snapshot as done after all: workers still hold it."""
        self.goodput.recover(TimeCategory.REDONE, self._undone_s)
        self._undone_s = 0.0

    def step(self, version: Version, loss: float, staleness: int, minibatches: int = 1) -> None:
        """Record the ``minibatches`` that one step has applied; ``loss`` is their mean."""
        self.steps += minibatches
        self.version = max(self.version, version)
        self._staleness_sum += staleness * minibatches
        if math.isfinite(loss):
            total, count = self._point
            self._point = (total + minibatches * loss, count + minibatches)
            first = math.isnan(self.loss)
            weight = 1 - (1 - _SMOOTHING) ** minibatches
            self.loss = loss if first else self.loss + weight * (loss - self.loss)

    def records(self, count: int, now: float) -> None:
        """Record that records of the main work are done."""
        assert self._rate is not None, "time has not begun"
        self._rate.add(count, now)
        if self._paced_since_s is None:
            self._paced_since_s = self._elapsed_s
        else:
            self._paced_records += count
        self._paced_until_s = self._elapsed_s

    def loss_point(self, now: float, *, last: bool = False) -> LogScalar | None:
        """Return the next point of the loss curve when it is due, or ``last`` of all."""
        total, count = self._point
        if not count or not (last or now - self._point_at >= LOSS_POINT_EVERY_S):
            return None
        self._point = (0.0, 0)
        self._point_at = now
        return LogScalar("loss", self.version, total / count)

    @property
    def seconds(self) -> float:
        """The seconds since the job began, over all incarnations of its master."""
        return self._elapsed_s

    @property
    def staleness_mean(self) -> float:
        """Average staleness of applied gradients, in versions."""
        return self._staleness_sum / self.steps if self.steps else 0.0

    def per_s(self, now: float) -> float:
        """Return the records per second, lately."""
        return self._rate.per_s(now) if self._rate else 0.0

    @property
    def mean_records_per_s(self) -> float:
        """Records per second from the first ones done to the last: without start and end.

        0 while that is nothing, or as good as nothing.
        """
        since = self._paced_since_s
        took_s = 0.0 if since is None else self._paced_until_s - since
        return self._paced_records / took_s if took_s > 0 else 0.0

    def eta_s(self, records_left: int, now: float) -> float:
        """Return the seconds to the end of the main work at the present rate; negative: unknown.

        It is known from ``ETA_AFTER_S`` after the first records on.
        """
        if records_left == 0:
            return 0.0
        since, rate = self._paced_since_s, self.per_s(now)
        known = since is not None and self._paced_until_s - since >= ETA_AFTER_S
        return records_left / rate if known and rate > 0 else -1.0

    def snapshot(self) -> dict[str, Any]:
        """Return what survives the master as JSON-able values."""
        return {
            "steps": self.steps,
            "version": self.version,
            "predictions": self.predictions,
            "gradients_rejected": self.gradients_rejected,
            "loss": None if math.isnan(self.loss) else self.loss,
            "staleness_sum": self._staleness_sum,
            "goodput": self.goodput.snapshot(),
            "elapsed_s": self._elapsed_s,
            "paced": [self._paced_since_s, self._paced_until_s, self._paced_records],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved."""
        self.steps = saved["steps"]
        self.version = Version(saved["version"])
        self.predictions = saved["predictions"]
        self.gradients_rejected = saved["gradients_rejected"]
        self.loss = math.nan if saved["loss"] is None else saved["loss"]
        self._staleness_sum = saved["staleness_sum"]
        self.goodput.restore(saved.get("goodput", {}))
        self._elapsed_s = self._accounted_s = saved["elapsed_s"]
        since, until, records = saved.get("paced", (None, 0.0, 0))
        self._paced_since_s, self._paced_until_s, self._paced_records = since, until, records

    def reconcile(self, minibatches: int, version: Version) -> None:
        """Take over minibatches that only the parameters count, and their version."""
        self.steps += minibatches
        self.version = max(self.version, version)
