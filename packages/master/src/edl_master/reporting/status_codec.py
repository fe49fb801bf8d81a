"""The codec of the job's status: a view of the job, and what the master adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edl_master.codec import JOB_TYPES, error_to
from edl_master.core.curves import Point
from edl_master.core.effects import JobPhase
from edl_master.core.failure import Failure
from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_master.core.identifiers import TaskType
from edl_master.core.view import DeadLetter, JobView, WorkerView
from edl_proto import fields
from edl_proto.v1 import job_pb2
from edl_runtime.timestamps import rfc3339

_JOB_TYPES_OUT = {core: wire for wire, core in JOB_TYPES.items()}
_ADDED_LATER = dict.fromkeys(
    ("settings", "environment", "worker_environment", "servers", "master_restarts")
)
"""Fields that neither the view nor its context has."""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """The parts of a status beyond the view of the job.

    Attributes:
        name: of the job.
        started_at, finished_at: RFC 3339; ``finished_at`` is empty before the end.
        dashboard_url: of the job's page; empty if there is none.
        output: where the result is, or will be.
        incarnation: of the master.
        curves: by name.
        files: names of the files that tasks of each type read, for dead letters.
        table_rows: rows of each embedding table.
        gpus: which worker has which GPU.
    """

    name: str
    started_at: str
    finished_at: str
    dashboard_url: str
    output: str
    incarnation: str
    curves: Mapping[str, list[Point]]
    files: Mapping[TaskType, Sequence[str]]
    table_rows: Mapping[str, int] = field(default_factory=dict)
    gpus: GpuAssignment = NO_GPUS


def status_to(view: JobView, context: StatusContext) -> job_pb2.JobStatus:
    """Return the status of a job."""
    return fields.encode(
        job_pb2.JobStatus,
        view,
        context,
        type=_JOB_TYPES_OUT[view.type],
        state=phase_to(view.phase),
        progress=fields.encode(job_pb2.Progress, view.progress),
        workers=[_worker_to(worker, context.gpus) for worker in view.workers],
        tasks={
            str(type_): fields.encode(job_pb2.TaskCounts, counts)
            for type_, counts in view.tasks.items()
        },
        curves=[_curve_to(name, points) for name, points in context.curves.items()],
        error=error_to(view.failure) if view.failure else None,
        workers_wanted=job_pb2.WorkersSpec(min=view.min_workers, max=view.max_workers),
        dead_letters=[_dead_letter_to(letter, context.files) for letter in view.dead_letters],
        embedding_rows=context.table_rows,
        **_ADDED_LATER,
    )


def phase_to(phase: JobPhase) -> job_pb2.JobState.ValueType:
    """Return the state that a status shows for a phase."""
    return job_pb2.JobState.Value(phase.name)


def failed_status(spec: job_pb2.JobSpec, failure: Failure, now: float) -> job_pb2.JobStatus:
    """Return the final status of a job that cannot be started.

    Args:
        spec: the job.
        failure: why.
        now: seconds since 1970.
    """
    at = rfc3339(now)
    return job_pb2.JobStatus(
        name=spec.name,
        type=spec.type,
        state=job_pb2.FAILED,
        error=error_to(failure),
        started_at=at,
        finished_at=at,
        output=spec.output,
        workers_wanted=spec.workers,
    )


def _worker_to(worker: WorkerView, gpus: GpuAssignment) -> job_pb2.WorkerStatus:
    task, gpu = str(worker.task) if worker.task else "", gpus.gpu_of(worker.id)
    return fields.encode(job_pb2.WorkerStatus, worker, state=str(worker.state), task=task, gpu=gpu)


def _curve_to(name: str, points: list[Point]) -> job_pb2.Curve:
    return job_pb2.Curve(
        name=name,
        points=[
            job_pb2.CurvePoint(step=point.step, at_s=point.at_s, value=point.value)
            for point in points
            if math.isfinite(point.value)
        ],
    )


def curves_from(status: job_pb2.JobStatus) -> dict[str, list[Point]]:
    """Return the curves of a status by name."""
    return {
        curve.name: [Point(point.step, point.at_s, point.value) for point in curve.points]
        for curve in status.curves
    }


def _dead_letter_to(
    letter: DeadLetter, files: Mapping[TaskType, Sequence[str]]
) -> job_pb2.DeadLetter:
    names, places = files[letter.task.type], dict[str, list[str]]()
    for part in sorted(letter.records, key=lambda part: (part.file, part.start)):
        places.setdefault(names[part.file], []).append(f"[{part.start}, {part.stop})")
    return job_pb2.DeadLetter(
        task=str(letter.task),
        records="; ".join(f"{name} {' '.join(parts)}" for name, parts in places.items()),
        error=error_to(letter.failure),
        records_trained=letter.records_trained,
    )
