"""The spans of a job: one trace, with the job as its root."""

from __future__ import annotations

from edl_master.core.effects import LogEvent
from edl_master.core.events import CheckpointFailed, CheckpointTaken, SnapshotTaken, Tick
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskKey, TaskType, Version, WorkerId
from edl_master.core.timeline import PhaseSpan, SpanOutcome, TaskSpan
from edl_master.reporting.job_spans import JobSpans
from edl_proto.v1 import job_pb2
from edl_spans.export import SpanExport, SpanRecord

SUBMITTED, SUBMITTED_S = "2026-11-03T12:00:00Z", 1_793_707_200.0


class Recorded(SpanExport):
    """Keeps what it would send."""

    def __init__(self) -> None:
        super().__init__("test", {})
        self.records: list[SpanRecord] = []

    @property
    def is_on(self) -> bool:
        return True

    def record(self, record: SpanRecord) -> None:
        self.records.append(record)


def job(export: SpanExport, now: float = SUBMITTED_S + 60, submitted: str = SUBMITTED) -> JobSpans:
    return JobSpans(export, "mine", submitted, lambda: now)


def test_everything_is_a_part_of_the_job() -> None:
    export = Recorded()
    spans = job(export)
    key = TaskKey(TaskType.TRAINING, 1, 3)
    done = TaskSpan(5.0, 1.5, WorkerId(2), key, SpanOutcome.DONE)
    lost = TaskSpan(5.0, 1.5, WorkerId(0), key, SpanOutcome.LOST)
    spans.record_tasks([done, PhaseSpan(5.0, 1.0, WorkerId(2), {"input": 1.0}), lost])
    spans.record_event(Tick())
    spans.record_event(SnapshotTaken(Version(7), 2.0, 0.5))
    spans.record_event(CheckpointTaken(Version(8), 4.0))
    spans.record_event(CheckpointFailed(Version(9), Failure("DISK_FULL", "the disk is full")))
    status = job_pb2.JobStatus(state=job_pb2.FAILED, type=job_pb2.TRAIN)
    status.error.what = "no record could be read"
    spans.record_job(status)
    *parts, whole = export.records
    assert [(part.name, part.failure) for part in parts] == [
        ("task training", ""),
        ("task training", "the worker lost the task, or ended"),
        ("snapshot", ""),
        ("checkpoint", ""),
        ("checkpoint", "the disk is full"),
    ]
    assert {part.parent for part in parts} == {whole.identity}
    assert parts[0].attributes == {
        "edl.job": "mine", "edl.task": "training/1/3", "edl.worker": 2, "edl.outcome": "done",
    }  # fmt: skip
    assert (parts[2].began, parts[2].seconds) == (SUBMITTED_S + 58, 2.0)
    assert parts[2].attributes["edl.parameter_version"] == 7
    assert (whole.name, whole.began, whole.seconds) == ("job", SUBMITTED_S, 60.0)
    assert (whole.attributes["edl.state"], whole.failure) == ("FAILED", "no record could be read")


def test_an_evaluation_lasts_from_its_start_to_its_metrics() -> None:
    export, now = Recorded(), [100.0]
    spans = JobSpans(export, "mine", SUBMITTED, lambda: now[0])
    spans.record_log(LogEvent("EvaluationEnded", "of an earlier master", facts={"loss": "1"}))
    spans.record_log(LogEvent("EvaluationStarted", "", facts={"evaluation": "0", "tasks": "4"}))
    now[0] = 103.0
    spans.record_log(LogEvent("EvaluationEnded", "", facts={"accuracy": "0.9"}))
    spans.record_log(LogEvent("EvaluationStarted", "", facts={"evaluation": "1", "tasks": "4"}))
    spans.record_log(LogEvent("EvaluationEnded", "Evaluation 2 has no metrics."))
    first, second = export.records
    assert (first.name, first.began, first.seconds, first.failure) == ("evaluation", 100.0, 3.0, "")
    assert first.attributes["edl.metric.accuracy"] == "0.9"
    assert first.attributes["edl.tasks"] == "4"
    assert second.failure == "Evaluation 2 has no metrics."


def test_later_masters_of_a_job_continue_its_trace() -> None:
    export = Recorded()
    for spans in (job(export), job(export), job(export, submitted="2026-11-04T12:00:00Z")):
        spans.record_event(SnapshotTaken(Version(7), 2.0))
    first, later, namesake = (record.parent for record in export.records)
    assert first == later
    assert first != namesake
