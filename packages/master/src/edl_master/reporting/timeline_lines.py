"""Spans of a timeline as lines of JSON, which ``job_directory.TIMELINE`` describes, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.timeline import PhaseSpan, Span, SpanOutcome, TaskSpan

_LATEST = 1e11
"""The latest credible time, in seconds since the epoch."""


def to_lines(spans: Iterable[Span]) -> str:
    """Format each span as a line."""
    return "".join(
        json.dumps(_fields(span), separators=(",", ":"), allow_nan=False) + "\n" for span in spans
    )


def read_lines(chunks: Iterable[bytes]) -> Iterator[list[Span]]:
    """Yield the spans of each chunk.

    Args:
        chunks: of whole lines. A line that a killed master tore, or a later release wrote, is left
            out.
    """
    for chunk in chunks:
        yield [span for line in chunk.splitlines() if (span := _span(line)) is not None]


def _fields(span: Span) -> dict[str, object]:
    fields: dict[str, object] = {
        "at": round(span.at, 3),
        "seconds": round(span.seconds, 3),
        "worker": span.worker,
    }
    if isinstance(span, PhaseSpan):
        # A gap of less than a millisecond cannot be seen.
        phases = {phase: round(spent, 3) for phase, spent in span.phases.items()}
        fields["phases"] = {phase: spent for phase, spent in phases.items() if spent}
    else:
        fields |= {"task": str(span.task), "outcome": str(span.outcome)}
    return fields


def _span(line: bytes) -> Span | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        at, seconds = _time(fields["at"]), _time(fields["seconds"])
        worker = WorkerId(int(fields["worker"]))
        if "phases" in fields:
            phases = {str(phase): _time(spent) for phase, spent in fields["phases"].items()}
            return PhaseSpan(at, seconds, worker, phases)
        kind, round_, number = fields["task"].split("/")
        task = TaskKey(TaskType(kind), int(round_), int(number))
        return TaskSpan(at, seconds, worker, task, SpanOutcome(fields["outcome"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _time(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or not 0 <= seconds < _LATEST:
        raise ValueError(f"{value} is not a number of seconds")
    return seconds
