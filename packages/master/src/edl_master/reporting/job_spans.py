"""The spans of a job for OpenTelemetry: the job, its tasks, evaluations, snapshots, checkpoints.

All spans of a job are one trace, also those of its later masters: its identity follows from the
job. The span of the job itself comes last, with the end of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from edl_master.core.effects import LogEvent
from edl_master.core.events import CheckpointFailed, CheckpointTaken, Event, SnapshotTaken
from edl_master.core.timeline import Span, SpanOutcome, TaskSpan
from edl_proto.v1 import job_pb2
from edl_runtime.timestamps import parse_rfc3339
from edl_spans.export import SpanExport, SpanIdentity, SpanRecord

Facts = dict[str, str | int | float | bool]

_FAILURES = {
    SpanOutcome.FAILED: "the worker could not do the task",
    SpanOutcome.LOST: "the worker lost the task, or ended",
}
_EVALUATION_STARTED, _EVALUATION_ENDED = "EvaluationStarted", "EvaluationEnded"


class JobSpans:
    """Makes spans of what the master observes; costs nothing when export is off.

    Args:
        export: where they go.
        job: its name.
        submitted_at: RFC 3339; tells jobs of the same name apart.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        export: SpanExport,
        job: str,
        submitted_at: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._export = export
        self._job = job
        self._submitted_at = submitted_at
        self._clock = clock
        self._identity = SpanIdentity.of(f"{job} {submitted_at}")
        self._evaluation: tuple[float, LogEvent] | None = None

    def record_tasks(self, spans: Iterable[Span]) -> None:
        """Finished spans of the timeline; those of phases are left out."""
        if not self._export.is_on:
            return
        for span in spans:
            if isinstance(span, TaskSpan):
                facts: Facts = {
                    "edl.task": str(span.task),
                    "edl.worker": int(span.worker),
                    "edl.outcome": str(span.outcome),
                }
                failure = _FAILURES.get(span.outcome, "")
                self._add(f"task {span.task.type}", span.at, span.seconds, facts, failure)

    def record_event(self, event: Event) -> None:
        """Record an event of the job: snapshots and checkpoints are spans."""
        match event:
            case SnapshotTaken(version, seconds, paused_s):
                name, failure = "snapshot", ""
            case CheckpointTaken(version, seconds, paused_s):
                name, failure = "checkpoint", ""
            case CheckpointFailed(version, why):
                name, failure, seconds, paused_s = "checkpoint", why.what, 0.0, 0.0
            case _:
                return
        facts: Facts = {"edl.parameter_version": int(version), "edl.paused_seconds": paused_s}
        self._add(name, self._clock() - seconds, seconds, facts, failure)

    def record_log(self, event: LogEvent) -> None:
        """Record an entry of the event log: an evaluation lasts from one entry to another."""
        if event.kind == _EVALUATION_STARTED:
            self._evaluation = self._clock(), event
        elif event.kind == _EVALUATION_ENDED and self._evaluation is not None:
            (began, start), self._evaluation = self._evaluation, None
            facts: Facts = {f"edl.{name}": value for name, value in start.facts.items()}
            facts |= {f"edl.metric.{name}": value for name, value in event.facts.items()}
            failure = "" if event.facts else event.message
            self._add("evaluation", began, self._clock() - began, facts, failure)

    def record_job(self, status: job_pb2.JobStatus) -> None:
        """Record the job's own span, from the submission to now: it is over."""
        now = self._clock()
        submitted = parse_rfc3339(self._submitted_at or status.started_at)
        began = now if submitted is None else submitted
        self._export.record(
            SpanRecord(
                "job",
                began,
                now - began,
                {
                    "edl.job": self._job,
                    "edl.state": job_pb2.JobState.Name(status.state),
                    "edl.type": job_pb2.JobType.Name(status.type),
                },
                status.error.what if status.state == job_pb2.FAILED else "",
                identity=self._identity,
            )
        )

    def _add(
        self,
        name: str,
        began: float,
        seconds: float,
        facts: Facts,
        failure: str = "",
    ) -> None:
        facts["edl.job"] = self._job
        self._export.record(SpanRecord(name, began, seconds, facts, failure, parent=self._identity))
