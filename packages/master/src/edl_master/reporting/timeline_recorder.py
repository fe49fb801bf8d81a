"""Records what workers did when: the timeline behind its lock, and its lines on disk."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from edl_master.adapters.timeline_file import TimelineFile
from edl_master.core.identifiers import InstanceId, TaskKey, Token, WorkerId
from edl_master.core.timeline import PhaseSpan, Span, SpanOutcome, Timeline

log = logging.getLogger(__name__)

_COUNTERS = {
    phase: f'edl_worker_step_duration_seconds_sum{{phase="{phase}"}}'
    for phase in ("input", "compute", "exchange")
}
"""What heartbeats carry of each phase of a training step."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """Seconds since the epoch that never jump."""

    wall: float
    monotonic: float

    def __call__(self) -> float:
        return self.wall + time.monotonic() - self.monotonic


class TimelineRecorder:
    """The timeline of a job; safe for threads. An error of the disk costs lines, never the job.

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
        self._timeline = Timeline(self._clock())
        self._flushing = threading.Lock()
        self._failed = False

    def leased(self, worker: WorkerId, instance: InstanceId, task: TaskKey, token: Token) -> None:
        """A worker gets a task."""
        with self._lock:
            self._timeline.leased(self._clock(), worker, instance, task, token)

    def ended(self, task: TaskKey, token: Token, outcome: SpanOutcome) -> None:
        """The holder of this lease has said how its work on the task ended."""
        with self._lock:
            self._timeline.ended(self._clock(), task, token, outcome)

    def gone(self, worker: WorkerId, instance: InstanceId) -> None:
        """An instance of a worker has ended."""
        with self._lock:
            self._timeline.gone(self._clock(), worker, instance)

    def heard(
        self, worker: WorkerId, instance: InstanceId, doing: str, counters: Mapping[str, float]
    ) -> None:
        """A heartbeat with the counters of its worker."""
        totals = {phase: counters.get(series, 0.0) for phase, series in _COUNTERS.items()}
        with self._lock:
            self._timeline.heard(self._clock(), worker, instance, doing, totals)

    def flush(self) -> None:
        """Write what is finished."""
        with self._lock:
            spans = self._timeline.take()
        self._write(spans)

    def close(self) -> None:
        """Write everything; what goes on is written as unfinished."""
        with self._lock:
            spans = [*self._timeline.take(), *self._timeline.unfinished(self._clock())]
            dropped = self._timeline.dropped
        self._write(spans)
        if dropped:
            log.warning("the timeline lacks %d spans: the disk was too slow for them", dropped)

    def chunks(self) -> Iterator[bytes]:
        """All lines so far, in chunks; at last what goes on at this moment."""
        self.flush()
        yield from self._file.chunks()
        with self._lock:
            spans = self._timeline.unfinished(self._clock())
        if spans:
            yield _lines(spans).encode()

    def _write(self, spans: list[Span]) -> None:
        if not spans:
            return
        if self._on_spans is not None:
            self._on_spans(spans)
        with self._flushing:
            try:
                self._file.append(_lines(spans))
                self._failed = False
            except OSError as error:
                if not self._failed:
                    log.warning("the timeline cannot be written, and lacks spans: %s", error)
                self._failed = True


def _lines(spans: Iterable[Span]) -> str:
    return "".join(
        json.dumps(_fields(span), separators=(",", ":"), allow_nan=False) + "\n" for span in spans
    )


def _fields(span: Span) -> dict[str, object]:
    """A span as ``edl_proto.local.job_directory.TIMELINE`` describes its line."""
    fields: dict[str, object] = {
        "at": round(span.at, 3),
        "seconds": round(span.seconds, 3),
        "worker": span.worker,
    }
    if isinstance(span, PhaseSpan):
        # Less than a millisecond is nothing that anybody sees.
        phases = {phase: round(spent, 3) for phase, spent in span.phases.items()}
        fields["phases"] = {phase: spent for phase, spent in phases.items() if spent}
    else:
        fields |= {"task": str(span.task), "outcome": str(span.outcome)}
    return fields
