"""The timeline of a job in the trace format of Chrome, which Perfetto reads, too.

https://ui.perfetto.dev opens it without sending it anywhere. Tasks are slices of one track per
worker, phases are counters in percent, and events of the job are instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from edl.plugins.job_status import PHASES, JobEvent, TimelineSpan
from edl_runtime.timestamps import parse_rfc3339

_MASTER, _TASKS, _PHASES = 1, 2, 3
"""Numbers of the processes that a trace shows: tracks of one kind are together."""

_FIRST_WORKER = 100
"""Number of worker 0's thread. For Perfetto, 0 is the idle thread, numbers of threads are unique
over all processes, and the thread with the number of its process is its main thread."""

_GAP_S = 1.5
"""Without a span for so long, a worker was not there: heartbeats come every half a second."""

TraceEvent = dict[str, Any]


def chrome_trace(
    job: str, spans: Sequence[TimelineSpan], events: Sequence[JobEvent]
) -> dict[str, Any]:
    """Return a job's whole trace, as the JSON object that such a file holds.

    Times are in microseconds since the first span or event.
    """
    instants = [(at, event) for event in events if (at := parse_rfc3339(event.at)) is not None]
    began = min([*(span.at for span in spans), *(at for at, _ in instants)], default=0.0)
    workers = {span.worker for span in spans}
    workers.update(worker for _, event in instants if (worker := _worker_of(event)) is not None)
    trace = [
        *_names(job, sorted(workers)),
        *_slices(spans, began),
        *_counters(spans, began),
        *(_instant(event, at - began) for at, event in instants),
    ]
    return {"traceEvents": trace, "displayTimeUnit": "ms", "otherData": origin(job)}


def origin(job: str) -> dict[str, str]:
    """Return the metadata of a trace: its writer and its job."""
    return {"writer": "edl trace", "job": job}


def _names(job: str, workers: Iterable[int]) -> Iterator[TraceEvent]:
    titles = {
        _MASTER: f"master of {job}: events",
        _TASKS: f"workers of {job}: tasks",
        _PHASES: f"workers of {job}: where their time goes (%)",
    }
    for process, title in titles.items():
        yield _metadata("process_name", process, process, name=title)
        yield _metadata("process_sort_index", process, process, sort_index=process)
    yield _metadata("thread_name", _MASTER, _MASTER, name="events")
    for worker in workers:
        yield _metadata("thread_name", _TASKS, _FIRST_WORKER + worker, name=f"worker {worker}")
        yield _metadata("thread_sort_index", _TASKS, _FIRST_WORKER + worker, sort_index=worker)


def _metadata(name: str, process: int, thread: int, /, **args: str | int) -> TraceEvent:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": args}


def _slices(spans: Sequence[TimelineSpan], began: float) -> Iterator[TraceEvent]:
    """Tasks, each of which ends before the worker's next one begins.

    Begin and length of a span are rounded, so that neighbours may overlap by a millisecond, and
    Perfetto drops slices that overlap.
    """
    tasks = sorted((span for span in spans if span.task), key=lambda span: (span.worker, span.at))
    slices = [_slice(span, began) for span in tasks]
    for one, following in pairwise(slices):
        if one["tid"] == following["tid"]:
            one["dur"] = min(one["dur"], following["ts"] - one["ts"])
    yield from slices


def _slice(span: TimelineSpan, began: float) -> TraceEvent:
    kind = span.task.partition("/")[0]
    return {
        "ph": "X",
        # Viewers give each name a color of its own.
        "name": kind if span.outcome == "done" else f"{kind} ({span.outcome})",
        "cat": span.outcome,
        "ts": _micros(span.at - began),
        "dur": _micros(span.seconds),
        "pid": _TASKS,
        "tid": _FIRST_WORKER + span.worker,
        "args": {"task": span.task, "outcome": span.outcome},
    }


def _counters(spans: Iterable[TimelineSpan], began: float) -> Iterator[TraceEvent]:
    """Yield a sample at the begin of each span of phases, and one of zeros before a gap."""
    ends: dict[int, float] = {}
    for span in spans:
        if not span.phases or span.seconds <= 0:
            continue
        end = ends.get(span.worker)
        if end is not None and span.at - end > _GAP_S:
            yield _sample(span.worker, end - began, {})
        percent = {name: 100 * spent / span.seconds for name, spent in span.phases.items()}
        yield _sample(span.worker, span.at - began, percent)
        ends[span.worker] = span.at + span.seconds
    for worker, end in sorted(ends.items()):
        yield _sample(worker, end - began, {})


def _sample(worker: int, at: float, percent: Mapping[str, float]) -> TraceEvent:
    values = {name: round(percent.get(name, 0.0), 1) for name in PHASES}
    return {
        "ph": "C",
        "name": f"worker {worker}",
        "ts": _micros(at),
        "pid": _PHASES,
        "args": values,
    }


def _instant(event: JobEvent, at: float) -> TraceEvent:
    """Return an event on the track of the worker that it is about; others on that of the master."""
    worker = _worker_of(event)
    return {
        "ph": "i",
        "name": event.kind,
        "cat": event.severity,
        "s": "t",
        "ts": _micros(at),
        "pid": _MASTER if worker is None else _TASKS,
        "tid": _MASTER if worker is None else _FIRST_WORKER + worker,
        "args": {"message": event.message, **event.facts},
    }


def _worker_of(event: JobEvent) -> int | None:
    worker = event.facts.get("worker", "")
    return int(worker) if worker.isascii() and worker.isdigit() else None


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
