"""The use of each worker's time over the life of a job, in bounded memory.

Time is cut into buckets of equal width. The width doubles when there would be too many of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor

from edl_master.core.identifiers import WorkerId
from edl_master.core.timeline import (
    COMPUTE,
    EXCHANGE,
    IDLE,
    INPUT,
    LOADING,
    OTHER,
    PhaseSpan,
    Span,
    SpanOutcome,
)

PHASES = (COMPUTE, OTHER, INPUT, EXCHANGE, LOADING, IDLE)
"""The phases in the order of all lists here."""

_OF_USE = (COMPUTE, OTHER)

_PLACES = {phase: place for place, phase in enumerate(PHASES)}

_MAX_BUCKETS = 300
"""More than that is finer than a screen shows."""

_MAX_CELLS = 60_000
"""Buckets of all workers; a job with more than 200 workers has fewer buckets."""

_MIN_BUCKETS = 60

_MAX_WORKERS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """One worker's time.

    Attributes:
        worker: whose.
        seconds: by phase, over the whole job.
        tasks: how many ended how.
        first: number of the bucket that ``shares`` begins with.
        shares: for each bucket the shares of its width by phase, in the order of ``PHASES``; what
            is missing from 1 is time in which the worker was not heard of.
    """

    worker: WorkerId
    seconds: Mapping[str, float]
    tasks: Mapping[SpanOutcome, int]
    first: int
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The time of a job's workers.

    Attributes:
        at: when the first bucket begins, on the clock of the spans.
        width_s: of a bucket, in seconds.
        buckets: how many there are.
        workers: in order.
        left_out: how many workers are not among them.
    """

    at: float = 0.0
    width_s: float = 1.0
    buckets: int = 0
    workers: tuple[WorkerTimes, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Record:
    """The seconds that one worker spent by phase, as a whole and by bucket."""

    seconds: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))
    tasks: Counter[SpanOutcome] = field(default_factory=Counter)
    buckets: dict[int, list[float]] = field(default_factory=dict)


class TimelineSummary:
    """Adds up spans; they may come in any order."""

    def __init__(self) -> None:
        self._width_s = 1.0
        self._first, self._last = 0, -1
        self._records: dict[WorkerId, _Record] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans that were not added before."""
        for span in spans:
            if isinstance(span, PhaseSpan):
                self._add_phases(span)
            else:
                self._record(span.worker).tasks[span.outcome] += 1

    def times(self, max_workers: int = _MAX_WORKERS_SHOWN) -> JobTimes:
        """Return the times up to now.

        Args:
            max_workers: if there are more, those that worked for the smallest share of their time.
        """
        heard = {worker: record for worker, record in self._records.items() if record.buckets}
        if not heard:
            return JobTimes()
        slowest = sorted(heard, key=lambda worker: (_share_of_use(heard[worker]), worker))
        return JobTimes(
            at=self._first * self._width_s,
            width_s=self._width_s,
            buckets=self._last - self._first + 1,
            workers=tuple(
                self._times_of(worker, heard[worker]) for worker in sorted(slowest[:max_workers])
            ),
            left_out=max(0, len(heard) - max_workers),
        )

    def _times_of(self, worker: WorkerId, record: _Record) -> WorkerTimes:
        first, last = min(record.buckets), max(record.buckets)
        nothing = [0.0] * len(PHASES)
        return WorkerTimes(
            worker=worker,
            seconds=dict(zip(PHASES, record.seconds, strict=True)),
            tasks=dict(record.tasks),
            first=first - self._first,
            shares=tuple(
                tuple(spent / self._width_s for spent in record.buckets.get(bucket, nothing))
                for bucket in range(first, last + 1)
            ),
        )

    def _add_phases(self, span: PhaseSpan) -> None:
        if span.seconds <= 0:
            return
        record = self._record(span.worker)
        end = span.at + span.seconds
        self._make_room(span.at, end)
        spent = [0.0] * len(PHASES)
        for phase, seconds in span.phases.items():
            spent[_PLACES.get(phase, _PLACES[OTHER])] += seconds
        record.seconds = [a + b for a, b in zip(record.seconds, spent, strict=True)]
        for bucket in self._buckets(span.at, end):
            begins = bucket * self._width_s
            share = (min(end, begins + self._width_s) - max(span.at, begins)) / span.seconds
            if share > 0:
                had = record.buckets.get(bucket, [0.0] * len(PHASES))
                parts = [a + share * b for a, b in zip(had, spent, strict=True)]
                record.buckets[bucket] = parts

    def _record(self, worker: WorkerId) -> _Record:
        return self._records.setdefault(worker, _Record())

    def _buckets(self, at: float, end: float) -> range:
        first = floor(at / self._width_s)
        return range(first, max(first + 1, ceil(end / self._width_s)))

    def _make_room(self, at: float, end: float) -> None:
        """Extend the buckets up to this time."""
        most = max(_MIN_BUCKETS, min(_MAX_BUCKETS, _MAX_CELLS // len(self._records)))
        while True:
            buckets = self._buckets(at, end)
            first, last = buckets[0], buckets[-1]
            if self._first <= self._last:
                first, last = min(first, self._first), max(last, self._last)
            if last - first < most:
                self._first, self._last = first, last
                return
            self._double()

    def _double(self) -> None:
        self._width_s *= 2
        if self._first <= self._last:
            self._first, self._last = self._first // 2, self._last // 2
        for record in self._records.values():
            pairs: dict[int, list[float]] = {}
            for bucket, spent in record.buckets.items():
                had = pairs.get(bucket // 2)
                pairs[bucket // 2] = (
                    spent if had is None else [a + b for a, b in zip(had, spent, strict=True)]
                )
            record.buckets = pairs


def _share_of_use(record: _Record) -> float:
    """Return the share of a worker's time in which it worked, and did not wait."""
    total = sum(record.seconds)
    used = sum(record.seconds[_PLACES[phase]] for phase in _OF_USE)
    return used / total if total > 0 else 0.0
