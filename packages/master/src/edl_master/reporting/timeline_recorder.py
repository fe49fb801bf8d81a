"""Records the timeline of workers: behind its lock, with its sums, and its lines on disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edl_master.adapters.timeline_file import TimelineFile
from edl_master.core.identifiers import InstanceId, TaskKey, Token, WorkerId
from edl_master.core.timeline import COMPUTE, EXCHANGE, INPUT, Span, SpanOutcome, Timeline
from edl_master.core.timeline_summary import JobTimes, TimelineSummary
from edl_master.reporting.timeline_lines import read_lines, to_lines

log = logging.getLogger(__name__)

_COUNTERS = {
    phase: f'edl_worker_step_duration_seconds_sum{{phase="{phase}"}}'
    for phase in (INPUT, COMPUTE, EXCHANGE)
}
"""The counters of each phase of a training step in a heartbeat."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """Seconds since the epoch that never jump."""

    wall: float
    monotonic: float

    def __call__(self) -> float:
        return self.wall + time.monotonic() - self.monotonic


class TimelineRecorder:
    """The timeline of a job; thread-safe. An error of the disk loses lines, but not the job.

    Args:
        file: where the lines go; those of earlier masters of the job stay.
        clock: seconds since the epoch.
        on_spans: also gets finished spans, in the thread that writes them.
    """

    def __init__(
        self,
        file: TimelineFile,
        clock: Callable[[], float] | None = None,
        on_spans: Callable[[list[Span]], None] | None = None,
    ) -> None:
        self._file = file
        self._on_spans = on_spans
        self._clock = clock or _Clock(time.time(), time.monotonic())
        self._lock = threading.Lock()
        self._began = self._clock()
        self._timeline = Timeline(self._began)
        self._summing = threading.Lock()
        self._summary = TimelineSummary()
        self._reading = threading.Lock()
        self._has_read = False
        self._flushing = threading.Lock()
        self._failed = False

    def record_lease(
        self, worker: WorkerId, instance: InstanceId, task: TaskKey, token: Token
    ) -> None:
        """Record that a worker gets a task."""
        with self._lock:
            self._timeline.record_lease(self._clock(), worker, instance, task, token)

    def record_end(
        self, worker: WorkerId, task: TaskKey, token: Token, outcome: SpanOutcome
    ) -> None:
        """Record how a worker's work on a task ended; only the holder of the lease counts."""
        with self._lock:
            self._timeline.record_end(self._clock(), worker, task, token, outcome)

    def record_exit(self, worker: WorkerId, instance: InstanceId) -> None:
        """Record that an instance of a worker has ended."""
        with self._lock:
            self._timeline.record_exit(self._clock(), worker, instance)

    def record_heartbeat(
        self, worker: WorkerId, instance: InstanceId, phase: str, counters: Mapping[str, float]
    ) -> None:
        """Record a heartbeat with the counters of its worker."""
        totals = {name: counters.get(series, 0.0) for name, series in _COUNTERS.items()}
        with self._lock:
            self._timeline.record_heartbeat(self._clock(), worker, instance, phase, totals)

    def flush(self) -> None:
        """Write what is finished."""
        with self._lock:
            spans = self._timeline.take()
        self._write(spans)

    def close(self) -> None:
        """Write everything; what is in progress is written as unfinished."""
        with self._lock:
            spans = [*self._timeline.take(), *self._timeline.unfinished_spans(self._clock())]
            dropped = self._timeline.dropped
        self._write(spans)
        if dropped:
            log.warning("the timeline lacks %d spans: the disk was too slow for them", dropped)

    def chunks(self) -> Iterator[bytes]:
        """Yield all lines so far, in chunks; the last chunk has the work in progress."""
        self.flush()
        yield from self._file.chunks()
        with self._lock:
            spans = self._timeline.unfinished_spans(self._clock())
        if spans:
            yield to_lines(spans).encode()

    def times(self) -> JobTimes:
        """Return where the time of the workers went, under earlier masters too."""
        self._read_earlier()
        with self._summing:
            return self._summary.times()

    def _read_earlier(self) -> None:
        """Add what earlier masters wrote: once, and only when the timeline is requested.

        A master that takes over is not to wait for that.
        """
        with self._reading:
            if self._has_read:
                return
            self._has_read = True
            try:
                for spans in read_lines(self._file.chunks()):
                    earlier = [span for span in spans if span.at + span.seconds < self._began]
                    with self._summing:
                        self._summary.add(earlier)
            except OSError as error:
                log.warning("the timeline of earlier masters cannot be read: %s", error)

    def _write(self, spans: list[Span]) -> None:
        if not spans:
            return
        with self._summing:
            self._summary.add(spans)
        if self._on_spans is not None:
            self._on_spans(spans)
        with self._flushing:
            try:
                self._file.append(to_lines(spans))
                self._failed = False
            except OSError as error:
                if not self._failed:
                    log.warning("the timeline cannot be written, and lacks spans: %s", error)
                self._failed = True
